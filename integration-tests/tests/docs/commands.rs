//! The commands in the pages and in `docker/` exist, with the options that are used.

use std::{collections::BTreeMap, path::Path};

use integration_tests::member::run;

use super::{assert_none, blocks::blocks, files, name, read, root};

#[test]
fn every_command_and_option_in_the_pages_exists() {
    let mut commands = Vec::new();
    for block in blocks("sh") {
        let lines = block.text.replace("\\\n", " ");
        for line in lines.lines() {
            commands.extend(commands_of(line).map(|words| (block.place.clone(), words)));
        }
    }
    assert!(commands.len() >= 10, "{} commands", commands.len());
    assert_all_exist(&commands);
}

#[test]
fn every_command_and_option_for_deployment_exists() {
    let mut commands = Vec::new();
    for path in files("docker", &["service"]) {
        for line in read(&path).lines().filter(|line| line.starts_with("Exec")) {
            commands.extend(commands_of(line).map(|words| (name(&path), words)));
        }
    }
    let path = root().join("docker/kubernetes/deployment.yaml");
    let text = read(&path);
    let first = text.split("\n---\n").next().unwrap_or(&text);
    let document: serde_yaml::Value = serde_yaml::from_str(first).expect("it is YAML");
    let arguments = &document["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = arguments.as_sequence().expect("the container has arguments");
    let words = arguments.iter().map(|word| word.as_str().expect("a text").to_owned());
    commands.push((name(&path), words.collect()));
    assert!(commands.len() >= 3, "{} commands", commands.len());
    assert_all_exist(&commands);
}

#[test]
fn every_make_target_in_the_pages_and_the_release_workflow_exists() {
    let makefile = read(&root().join("Makefile"));
    let workflows = files(".github/workflows", &["yml"]);
    let mut texts: Vec<_> =
        blocks("sh").into_iter().map(|block| (block.place, block.text)).collect();
    for path in workflows {
        serde_yaml::from_str::<serde_yaml::Value>(&read(&path)).expect("a workflow is YAML");
        texts.push((name(&path), read(&path)));
    }
    let mut found = 0;
    let mut unknown = Vec::new();
    for (place, text) in texts {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<_> = line.split_whitespace().collect();
            for pair in words.windows(2).filter(|pair| pair[0] == "make") {
                found += 1;
                if !makefile.contains(&format!("\n{}:", pair[1])) {
                    unknown.push(format!("{place}: make {}", pair[1]));
                }
            }
        }
    }
    assert!(found >= 5, "{found} targets");
    assert_none("make targets that do not exist", &unknown);
}

#[test]
fn every_step_of_the_release_is_a_make_target() {
    let text = read(&root().join(".github/workflows/release.yml"));
    let workflow: serde_yaml::Value = serde_yaml::from_str(&text).expect("a workflow is YAML");
    let jobs = workflow["jobs"].as_mapping().expect("it has jobs");
    let steps = jobs.values().flat_map(|job| job["steps"].as_sequence().expect("a job has steps"));
    let (mut targets, mut others) = (0, Vec::new());
    for step in steps {
        let command = step["run"].as_str().unwrap_or_default();
        // GitHub's own actions bring the checkout and carry files from job to job.
        let plumbing = step["uses"].as_str().is_some_and(|action| action.starts_with("actions/"));
        if command.starts_with("make ")
            || command.starts_with("sudo --preserve-env=PATH,HOME make ")
        {
            targets += 1;
        } else if !plumbing {
            others.push(format!("{step:?}"));
        }
    }
    assert!(targets >= 10, "{targets} steps");
    assert_none("steps that are no make target", &others);
}

/// The arguments of each call of `tidegate` in a line of shell.
fn commands_of(line: &str) -> impl Iterator<Item = Vec<String>> {
    let code = line.split(" #").next().unwrap_or(line);
    let parts = code.split(['|', ';', '&', '(', ')', '=', '"']);
    parts.filter_map(|part| {
        let mut words = part.split_whitespace().skip_while(|word| *word == "eval");
        let program = words.next()?;
        let is_ours = program == "tidegate" || program.ends_with("/bin/tidegate");
        is_ours.then(|| words.map(str::to_owned).collect())
    })
}

fn assert_all_exist(commands: &[(String, Vec<String>)]) {
    let mut helps = BTreeMap::new();
    let mut unknown = Vec::new();
    for (place, words) in commands {
        let mut path: Vec<&str> = Vec::new();
        for word in words.iter().take_while(|word| !word.starts_with('-')) {
            if !help(&mut helps, &path).contains(&format!("\n  {word} ")) {
                break;
            }
            path.push(word);
        }
        let known = help(&mut helps, &path);
        let names_one = words.first().is_none_or(|word| word.starts_with('-') || !path.is_empty());
        let options = words.iter().filter(|word| word.starts_with("--"));
        let wrong = options.filter(|option| !known.contains(option.as_str())).cloned();
        unknown.extend(wrong.map(|option| format!("{place}: {words:?} has no {option}")));
        if !names_one {
            unknown.push(format!("{place}: there is no command {words:?}"));
        }
    }
    assert_none("commands and options that do not exist", &unknown);
}

/// The help of a command, cached.
fn help(known: &mut BTreeMap<String, String>, path: &[&str]) -> String {
    let key = path.join(" ");
    let ask = || {
        let arguments: Vec<&str> = path.iter().copied().chain(["--help"]).collect();
        let output = run(Path::new("/"), &arguments);
        assert!(output.status.success(), "tidegate {key} --help");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    known.entry(key.clone()).or_insert_with(ask).clone()
}

#[test]
fn commands_are_found_in_lines_of_shell() {
    let found = |line| commands_of(line).collect::<Vec<_>>();
    assert_eq!(found("tidegate"), [Vec::<String>::new()]);
    assert_eq!(found("tidegate check a.yaml  # why"), [["check", "a.yaml"]]);
    assert_eq!(found("eval \"$(tidegate env curl)\""), [["env", "curl"]]);
    assert_eq!(found("echo x | tidegate explain -"), [["explain", "-"]]);
    assert_eq!(found("ExecStart=/usr/local/bin/tidegate --config x"), [["--config", "x"]]);
    assert!(found("install tidegate /usr/local/bin/").is_empty());
}
