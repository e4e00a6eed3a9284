//! The names in `docker/kubernetes/` and `docker/compose.yaml` exist: a wrong name is accepted when
//! applied, but never works.

use serde::Deserialize as _;
use serde_yaml::Value;

use super::{assert_none, files, name, read, root};

/// All documents of the manifests, each with its place.
fn manifests() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for path in files("docker/kubernetes", &["yaml"]) {
        for document in serde_yaml::Deserializer::from_str(&read(&path)) {
            found.push((name(&path), Value::deserialize(document).expect("it is YAML")));
        }
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_sequence().map_or(&[], Vec::as_slice)
}

fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn every_manifest_has_a_kind_and_selects_existing_pods() {
    let all = manifests();
    let pods: Vec<_> = all.iter().map(|(_, document)| &document["spec"]["template"]).collect();
    let mut bad = Vec::new();
    let mut selecting = 0;
    for (place, document) in &all {
        for said in [&document["apiVersion"], &document["kind"], &document["metadata"]["name"]] {
            if said.as_str().is_none() {
                bad.push(format!("{place}: no version, kind or name"));
            }
        }
        let spec = &document["spec"];
        let selector = match document["kind"].as_str() {
            Some("Service") => &spec["selector"],
            Some("NetworkPolicy") => &spec["podSelector"]["matchLabels"],
            Some("Deployment" | "PodDisruptionBudget") => &spec["selector"]["matchLabels"],
            _ => continue,
        };
        selecting += 1;
        if !pods.iter().any(|pod| pod["metadata"]["labels"] == *selector) {
            bad.push(format!("{place}: {selector:?} selects nothing"));
        }
    }
    assert!(selecting >= 6, "{selecting} selectors");
    assert_none("manifests that do not fit together", &bad);
}

#[test]
fn every_port_volume_and_config_map_that_a_manifest_names_is_there() {
    let all = manifests();
    let deployments: Vec<_> = all.iter().filter(|(_, d)| d["kind"] == "Deployment").collect();
    let has_port = |container: &Value, port: &Value| {
        list(&container["ports"]).iter().any(|known| known["name"] == *port)
    };
    let mut bad = Vec::new();
    for (place, deployment) in &deployments {
        let container = container(deployment);
        for probe in ["livenessProbe", "readinessProbe"] {
            let probe = &container[probe];
            if probe.is_null() {
                bad.push(format!("{place}: a probe is missing"));
            }
            for port in [&probe["httpGet"]["port"], &probe["tcpSocket"]["port"]] {
                if !port.is_null() && !has_port(container, port) {
                    bad.push(format!("{place}: a probe asks {port:?}"));
                }
            }
        }
        let volumes = list(&deployment["spec"]["template"]["spec"]["volumes"]);
        for mount in list(&container["volumeMounts"]) {
            if !volumes.iter().any(|volume| volume["name"] == mount["name"]) {
                bad.push(format!("{place}: {mount:?} mounts nothing"));
            }
        }
        for map in volumes.iter().map(|volume| &volume["configMap"]["name"]) {
            let is_it = |d: &Value| d["kind"] == "ConfigMap" && d["metadata"]["name"] == *map;
            if !map.is_null() && !all.iter().any(|(_, document)| is_it(document)) {
                bad.push(format!("{place}: there is no ConfigMap {map:?}"));
            }
        }
    }
    for (place, service) in all.iter().filter(|(_, d)| d["kind"] == "Service") {
        for port in list(&service["spec"]["ports"]) {
            if !deployments.iter().any(|(_, d)| has_port(container(d), &port["targetPort"])) {
                bad.push(format!("{place}: nothing listens at {port:?}"));
            }
        }
    }
    assert!(deployments.len() >= 2, "Tidegate and its Redis");
    assert_none("names that nothing answers to", &bad);
}

#[test]
fn every_service_and_config_that_compose_names_is_there() {
    let compose: Value =
        serde_yaml::from_str(&read(&root().join("docker/compose.yaml"))).expect("it is YAML");
    let services = compose["services"].as_mapping().expect("it has services");
    let mut bad = Vec::new();
    let mut named = 0;
    let shared = &compose["x-tidegate"];
    for service in services.values().chain([shared]) {
        let waits = &service["depends_on"];
        let with_condition = || waits.as_mapping().into_iter().flatten();
        for other in list(waits).iter().chain(with_condition().map(|(other, _)| other)) {
            named += 1;
            if !services.contains_key(other) {
                bad.push(format!("no service {other:?}"));
            }
        }
        for (other, how) in with_condition() {
            let checked = !services[other]["healthcheck"].is_null();
            if how["condition"] == "service_healthy" && !checked {
                bad.push(format!("{other:?} has no health check to wait for"));
            }
        }
        for config in list(&service["configs"]) {
            named += 1;
            let source = config["source"].as_str().expect("a config has a source");
            if compose["configs"][source].is_null() {
                bad.push(format!("no config {source}"));
            }
        }
    }
    assert!(named >= 4, "{named} names");
    assert_none("names of compose.yaml that nothing answers to", &bad);
}
