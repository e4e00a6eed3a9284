//! The Helm chart renders to consistent manifests, with any options. The templates use few actions
//! (values, `if`, `toYaml | nindent`), which this test renders like Helm; any other action fails
//! the test.

use serde::Deserialize as _;
use serde_yaml::Value;

use super::{assert_none, files, name, read, root, rule_files};

const RELEASE: &str = "crawl";

/// The chart's values, with these set over them.
fn values(set: &[(&str, Value)]) -> Value {
    let text = read(&root().join("docker/helm/values.yaml"));
    let mut values: Value = serde_yaml::from_str(&text).expect("values.yaml is YAML");
    for (path, value) in set {
        let mut at = &mut values;
        for key in path.split('.') {
            at = at.get_mut(key).unwrap_or_else(|| panic!("values.yaml has no {path}"));
        }
        *at = value.clone();
    }
    values
}

/// The value of a path such as `.Values.redis.enabled`.
fn look_up<'v>(values: &'v Value, path: &str) -> &'v Value {
    let path = path.strip_prefix(".Values.").unwrap_or_else(|| panic!("{path} is no value"));
    path.split('.')
        .fold(values, |at, key| at.get(key).unwrap_or_else(|| panic!("values.yaml has no {path}")))
}

/// Whether Helm takes a value for true.
fn holds(values: &Value, condition: &str) -> bool {
    if let Some(rest) = condition.strip_prefix("not ") {
        return !holds(values, rest);
    }
    match look_up(values, condition) {
        Value::Bool(value) => *value,
        Value::String(text) => !text.is_empty(),
        other => panic!("{condition} is neither a flag nor a text: {other:?}"),
    }
}

fn plain(values: &Value, path: &str) -> String {
    if path == ".Release.Name" {
        return RELEASE.to_owned();
    }
    match look_up(values, path) {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => panic!("{path} cannot be written as it is: {other:?}"),
    }
}

fn nested(values: &Value, action: &str) -> String {
    let (path, indent) = action.split_once(" | nindent ").expect("toYaml with nindent");
    let indent = " ".repeat(indent.trim().parse().expect("a number"));
    let yaml = serde_yaml::to_string(look_up(values, path)).expect("it can be written");
    yaml.lines().map(|line| format!("\n{indent}{line}")).collect()
}

fn render(template: &str, values: &Value) -> String {
    let mut out = String::new();
    // For each open `if`: whether its part is in force.
    let mut open: Vec<bool> = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, mut after) = after.split_once("}}").expect("an action ends");
        let trims = action.starts_with('-');
        let before = if trims { before.trim_end() } else { before };
        if open.iter().all(|part| *part) {
            out.push_str(before);
        }
        let action = action.trim_start_matches('-');
        if action.ends_with('-') {
            after = after.trim_start();
        }
        let action = action.trim_end_matches('-').trim();
        let shown = open.iter().all(|part| *part);
        match action.split_once(' ') {
            Some(("if", condition)) => open.push(holds(values, condition)),
            Some(("toYaml", action)) if shown => out.push_str(&nested(values, action)),
            Some(("toYaml", _)) => {}
            None if action == "else" => {
                let part = open.last_mut().expect("an open `if`");
                *part = !*part;
            }
            None if action == "end" => drop(open.pop().expect("an open `if`")),
            None if shown => out.push_str(&plain(values, action)),
            None => {}
            Some(_) => panic!("{action}: not rendered here"),
        }
        rest = after;
    }
    assert!(open.is_empty(), "an `if` without its `end`");
    out + rest
}

/// All documents of the chart with these values.
fn manifests(set: &[(&str, Value)]) -> Vec<(String, Value)> {
    let values = values(set);
    let mut found = Vec::new();
    for path in files("docker/helm/templates", &["yaml"]) {
        let text = render(&read(&path), &values);
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document = Value::deserialize(document)
                .unwrap_or_else(|error| panic!("{}: {error}\n{text}", name(&path)));
            if !document.is_null() {
                found.push((name(&path), document));
            }
        }
    }
    found
}

fn kind<'m>(manifests: &'m [(String, Value)], kind: &str) -> Vec<&'m Value> {
    manifests.iter().map(|(_, document)| document).filter(|d| d["kind"] == kind).collect()
}

#[test]
fn the_chart_renders_to_manifests_that_fit_together() {
    let everything = [
        ("autoscaling.enabled", true.into()),
        ("serviceMonitor.enabled", true.into()),
        ("redis.enabled", false.into()),
        ("caSecret", "my-ca".into()),
    ];
    for (set, kinds) in [(&[][..], 7), (&everything[..], 7)] {
        let all = manifests(set);
        assert_eq!(all.len(), kinds, "{all:?}");
        let pods: Vec<_> = all.iter().map(|(_, d)| &d["spec"]["template"]).collect();
        let mut bad = Vec::new();
        for (place, document) in &all {
            let spec = &document["spec"];
            let selector = match document["kind"].as_str() {
                Some("Service") => &spec["selector"],
                Some("Deployment" | "PodDisruptionBudget") => &spec["selector"]["matchLabels"],
                _ => continue,
            };
            if !pods.iter().any(|pod| pod["metadata"]["labels"] == *selector) {
                bad.push(format!("{place}: {selector:?} selects nothing"));
            }
        }
        assert_none("manifests that do not fit together", &bad);
    }
}

#[test]
fn enabled_parts_are_rendered_and_others_are_not() {
    let plain = manifests(&[]);
    assert!(kind(&plain, "HorizontalPodAutoscaler").is_empty());
    assert!(kind(&plain, "ServiceMonitor").is_empty());
    let deployments = kind(&plain, "Deployment");
    assert_eq!(deployments.len(), 2, "Tidegate and its Redis");
    assert_eq!(deployments[0]["spec"]["replicas"], 2);
    let set = [
        ("autoscaling.enabled", true.into()),
        ("serviceMonitor.enabled", true.into()),
        ("redis.enabled", false.into()),
        ("caSecret", "my-ca".into()),
    ];
    let full = manifests(&set);
    let scaler = kind(&full, "HorizontalPodAutoscaler")[0];
    assert_eq!(scaler["spec"]["scaleTargetRef"]["name"], RELEASE);
    let monitor = kind(&full, "ServiceMonitor")[0];
    let wanted = &monitor["spec"]["selector"]["matchLabels"];
    let labelled = |service: &&&Value| {
        let labels = &service["metadata"]["labels"];
        wanted.as_mapping().expect("labels").iter().all(|(key, value)| labels[key] == *value)
    };
    assert_eq!(kind(&full, "Service").iter().filter(labelled).count(), 1, "the admin port's");
    let deployment = kind(&full, "Deployment")[0];
    assert!(deployment["spec"]["replicas"].is_null(), "the autoscaler decides");
    let spec = &deployment["spec"]["template"]["spec"];
    let secrets: Vec<_> = spec["volumes"].as_sequence().expect("volumes").iter().collect();
    assert!(secrets.iter().any(|volume| volume["secret"]["secretName"] == "my-ca"));
    let variables = spec["containers"][0]["env"].as_sequence().expect("variables");
    assert!(variables.iter().any(|v| v["valueFrom"]["secretKeyRef"]["key"] == "redis-url"));
}

#[test]
fn the_charts_rule_file_is_good() {
    let all = manifests(&[]);
    let map = kind(&all, "ConfigMap")[0];
    let text = map["data"]["tidegate.yaml"].as_str().expect("the rule file");
    let text = text.replace("${REDIS_URL}", "redis://crawl-redis:6379");
    rule_files::check(&text).unwrap_or_else(|why| panic!("{why}"));
}
