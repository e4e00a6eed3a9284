//! The older Prometheus text format.

use std::fmt::Write as _;

/// Converts OpenMetrics text to the older Prometheus format (0.0.4). There the comments of a
/// counter contain its `_total` too, an info is a gauge, and there is neither `# UNIT` nor `# EOF`.
#[must_use]
pub fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + 1_024);
    let mut help = "";
    for line in openmetrics.lines() {
        if line.starts_with("# HELP ") {
            help = line;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.rsplit_once(' ').unwrap_or((rest, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            let words = help.splitn(4, ' ').nth(3).unwrap_or("");
            // Writing to a String does not fail.
            _ = writeln!(text, "# HELP {name}{suffix} {words}\n# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
