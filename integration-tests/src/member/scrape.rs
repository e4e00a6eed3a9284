//! Parses `/metrics`, as far as sums over series need it.

/// The samples of one scrape.
#[derive(Debug, Clone)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    /// Parses the Prometheus or OpenMetrics text format. Label values must not contain commas or
    /// quotes.
    ///
    /// # Panics
    /// On a line that is neither a comment nor a sample.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { samples: lines.map(Sample::parse).collect() }
    }

    /// The sum of `name` over the series with all of `labels`; 0 if there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample, (key, value): &(&str, &str)| {
            sample.labels.iter().any(|(k, v)| k == key && v == value)
        };
        let matching = self
            .samples
            .iter()
            .filter(|sample| sample.name == name)
            .filter(|sample| labels.iter().all(|label| has(sample, label)));
        // Not `Sum`, whose empty sum is -0.0.
        matching.fold(0.0, |sum, sample| sum + sample.value)
    }

    /// The names of all samples (`..._total`, `..._bucket`, ... as written), each once.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.samples.iter().map(|sample| sample.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Sample {
    fn parse(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, rest.trim_end_matches('}')),
            None => (series, ""),
        };
        let pair = |label: &str| {
            let (key, value) = label.split_once('=').expect("a label has a value");
            (key.to_owned(), value.trim_matches('"').to_owned())
        };
        Self {
            name: name.to_owned(),
            labels: labels.split(',').filter(|label| !label.is_empty()).map(pair).collect(),
            value: value.parse().expect("a sample's value is a number"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn sums_go_over_the_series_that_have_the_labels() {
        let metrics = Metrics::parse(
            "# HELP tidegate_requests x\n\
             tidegate_requests_total{rule=\"a\",verdict=\"ok\"} 2\n\
             tidegate_requests_total{rule=\"b\",verdict=\"ok\"} 3\n\
             tidegate_requests_total{rule=\"b\",verdict=\"captcha\"} 4\n\
             tidegate_store_up 1\n# EOF\n",
        );
        let sum = |labels: &[(&str, &str)]| metrics.sum("tidegate_requests_total", labels);
        assert!((sum(&[]) - 9.0).abs() < 1e-9);
        assert!((sum(&[("verdict", "ok")]) - 5.0).abs() < 1e-9);
        assert!((sum(&[("rule", "b"), ("verdict", "ok")]) - 3.0).abs() < 1e-9);
        assert!((metrics.sum("tidegate_store_up", &[]) - 1.0).abs() < 1e-9);
        assert_eq!(metrics.names(), ["tidegate_requests_total", "tidegate_store_up"]);
    }
}
