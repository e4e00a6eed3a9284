//! Rule files in the pages and in `docker/` pass `tidegate check`.

use std::{collections::HashMap, fs};

use integration_tests::member::binary_path;
use std::process::{Command, Stdio};

use super::{assert_none, blocks::blocks, name, read, root};

/// Whole files, and parts of a rule (such as `detect:`) inside a minimal rule.
#[test]
fn every_yaml_block_is_a_good_rule_file() {
    let mut checked = 0;
    let mut bad = Vec::new();
    for block in blocks("yaml").iter().filter(|block| block.mark != "not a rule file") {
        checked += 1;
        let Err(why) = check(&block.text) else { continue };
        if check(&as_rule(&block.text)).is_err() {
            bad.push(format!("{}\n{why}", block.place));
        }
    }
    assert!(checked >= 5, "{checked} blocks");
    assert_none("blocks that `tidegate check` refuses", &bad);
}

#[test]
fn every_rule_file_for_deployment_is_good() {
    let files = ["docker/tidegate.yaml", "docker/demo/tidegate.yaml"].map(|path| root().join(path));
    let mut texts: Vec<(String, String)> =
        files.iter().map(|path| (name(path), read(path))).collect();
    let map = root().join("docker/kubernetes/configmap.yaml");
    let document: serde_yaml::Value = serde_yaml::from_str(&read(&map)).expect("it is YAML");
    let inner = document["data"]["tidegate.yaml"].as_str().expect("the ConfigMap has the file");
    texts.push((name(&map), inner.to_owned()));
    let bad: Vec<String> = texts
        .iter()
        .filter_map(|(name, text)| check(text).err().map(|why| format!("{name}\n{why}")))
        .collect();
    assert_none("files that `tidegate check` refuses", &bad);
}

fn as_rule(text: &str) -> String {
    let mut rule = "rules:\n  - name: piece\n    match: \"*\"\n".to_owned();
    for line in text.lines() {
        rule.push_str(&format!("    {line}\n"));
    }
    rule
}

/// The message of `tidegate check` for this text, if it is invalid.
pub(super) fn check(text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
    let path = folder.path().join("tidegate.yaml");
    fs::write(&path, text).expect("a temporary folder is writable");
    let output = Command::new(binary_path())
        .arg("check")
        .arg(&path)
        .env_clear()
        .envs(variables(text))
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the binary can be started");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A value for each `${NAME}` that has no default.
fn variables(text: &str) -> HashMap<String, String> {
    let names = text.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
    let bare = names.map(|(name, _)| name).filter(|name| !name.contains(":-"));
    bare.map(|name| (name.to_owned(), "0123456789abcdef".to_owned())).collect()
}
