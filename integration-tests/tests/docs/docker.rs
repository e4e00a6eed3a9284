//! `docker/`: the checks that need no container engine.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use integration_tests::{
    client,
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};
use serde::Deserialize as _;

use super::{assert_none, files, name, read, root};

/// A machine that builds at the same time may take seconds.
const AT_MOST: Duration = Duration::from_secs(30);

#[test]
fn every_yaml_and_json_file_parses() {
    let mut bad = Vec::new();
    // The chart's templates are YAML only once they are rendered: `helm.rs`.
    let is_whole = |path: &std::path::PathBuf| !path.to_string_lossy().contains("helm/templates");
    for path in files("docker", &["yaml", "yml"]).into_iter().filter(is_whole) {
        for document in serde_yaml::Deserializer::from_str(&read(&path)) {
            if let Err(error) = serde_yaml::Value::deserialize(document) {
                bad.push(format!("{}: {error}", name(&path)));
            }
        }
    }
    for path in files("docker", &["json"]) {
        if let Err(error) = serde_json::from_str::<serde_json::Value>(&read(&path)) {
            bad.push(format!("{}: {error}", name(&path)));
        }
    }
    assert_none("files that do not parse", &bad);
}

#[test]
fn files_that_are_mounted_and_copied_exist() {
    let compose: serde_yaml::Value =
        serde_yaml::from_str(&read(&root().join("docker/compose.yaml"))).expect("it is YAML");
    let services = compose["services"].as_mapping().expect("it has services");
    let shared = [&compose["x-tidegate"]];
    let volumes = services.values().chain(shared).filter_map(|service| service.get("volumes"));
    let volumes = volumes.flat_map(|list| list.as_sequence().expect("a list").clone());
    let mut places: Vec<_> = volumes
        .map(|volume| {
            let volume = volume.as_str().expect("a text").to_owned();
            let host = volume.split(':').next().unwrap_or(&volume).to_owned();
            root().join("docker").join(host)
        })
        .collect();
    let dockerfile = read(&root().join("docker/Dockerfile"));
    for line in dockerfile.lines().filter(|line| line.starts_with("COPY docker/")) {
        places.push(root().join(line.split_whitespace().nth(1).expect("COPY has a source")));
    }
    assert!(places.len() >= 5, "{places:?}");
    let missing = places.iter().filter(|place| !place.exists()).map(|place| name(place));
    assert_none("missing", &missing.collect::<Vec<_>>());
}

#[tokio::test]
async fn the_health_check_of_the_image_fails_only_without_a_running_member() {
    let member = Member::start(&RuleFile::one_rule("rate: 3/s")).await;
    let check = health_check();
    let place = member.admin().to_string().replace(':', "/");
    let alive = check.iter().map(|word| word.replace("127.0.0.1/9128", &place));
    assert!(succeeds(&alive.collect::<Vec<_>>()), "{check:?}");
    let nobody = integration_tests::ports::free_address().to_string().replace(':', "/");
    let dead = check.iter().map(|word| word.replace("127.0.0.1/9128", &nobody));
    assert!(!succeeds(&dead.collect::<Vec<_>>()), "{check:?}");
}

/// The words of HEALTHCHECK in the Dockerfile.
fn health_check() -> Vec<String> {
    let text = read(&root().join("docker/Dockerfile")).replace("\\\n", " ");
    let line = text.lines().find(|line| line.starts_with("HEALTHCHECK")).expect("there is one");
    let (_, words) = line.split_once("CMD ").expect("it has a command");
    let words: Vec<String> = serde_json::from_str(words).expect("in the form of a JSON list");
    assert!(words.iter().any(|word| word.contains("127.0.0.1/9128")), "{words:?}");
    words
}

fn succeeds(words: &[String]) -> bool {
    let (program, arguments) = words.split_first().expect("a program");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    command.status().expect("the program is installed").success()
}

/// Dashboards and alerts on a metric that does not exist stay silent for ever.
#[tokio::test]
async fn every_metric_in_dashboards_and_alerts_is_served() {
    let served = served_after_everything_has_happened().await;
    let mut used = 0;
    let mut unknown = Vec::new();
    for folder in ["docker/grafana", "docker/prometheus"] {
        for path in files(folder, &["json", "yaml", "yml"]) {
            for metric in metrics_in(&path) {
                used += 1;
                if !served.contains(&metric) {
                    unknown.push(format!("{}: {metric}", name(&path)));
                }
            }
        }
    }
    assert!(used >= 20, "{used} metrics");
    assert_none("metrics that no member serves", &unknown);
}

fn metrics_in(path: &Path) -> BTreeSet<String> {
    let text = read(path);
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.filter(|part| part.starts_with("tidegate_")).map(str::to_owned).collect()
}

/// The names of all samples of a member that has seen a block, a bad rule file, and a Redis that refuses: some appear
/// with their first event only.
async fn served_after_everything_has_happened() -> BTreeSet<String> {
    let site = Site::start();
    site.on("/wall", Page::Captcha);
    let redis = Redis::start();
    let rule = "rate: 100/s, burst: 100, cooldown: {after: 1000, ratio: off}";
    let member = Member::start(&RuleFile::one_rule(rule).redis(&redis)).await;
    let (wall, page) = (site.url("/wall"), site.url("/"));
    wait_until("a wall is told and counted", AT_MOST, async || {
        client::get(member.proxy(), &wall).await;
        member.metric("tidegate_signature_hits_total", &[]).await > 0.0
    })
    .await;
    member.rewrite_with("rules: [{name: bad}]");
    wait_until("the bad rule file is noticed", AT_MOST, async || {
        member.metric("tidegate_config_reloads_total", &[("result", "error")]).await > 0.0
    })
    .await;
    // A foreign key in the place of the bucket: the script fails, and the member decides without
    // the store.
    assert!(redis.command(&["SET", "tidegate:{default}:b:", "not a bucket"]).starts_with("+OK"));
    wait_until("a decision is taken without Redis", AT_MOST, async || {
        client::get(member.proxy(), &page).await;
        let metrics = member.metrics().await;
        let counted = |name| metrics.sum(name, &[]) > 0.0;
        counted("tidegate_store_errors_total") && counted("tidegate_store_fallback_total")
    })
    .await;
    member.metrics().await.names().into_iter().map(str::to_owned).collect()
}
