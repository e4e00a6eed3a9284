//! The names of all metrics, as a scrape shows them.

use tidegate::observability::metrics::Metrics;

/// The name of each metric, with the ending that its type has.
///
/// # Panics
/// If a metric is rendered without its type.
#[must_use]
pub fn metric_names() -> Vec<String> {
    let metrics = Metrics::new();
    // A family shows itself once it has a series.
    drop(metrics.rule("default"));
    drop((metrics.store_seconds("take"), metrics.store_errors("timeout")));
    drop((metrics.store_fallback("local"), metrics.config_reloads("ok")));
    drop((metrics.signature_hits("a"), metrics.signature_decoys("a")));
    drop(metrics.user("crawler"));
    let text = metrics.render();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let named = |line: &str| {
        let (name, kind) = line.split_once(' ').expect("a TYPE line has a type");
        match kind {
            "counter" if !name.ends_with("_total") => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        }
    };
    types.map(named).collect()
}
