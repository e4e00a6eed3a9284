//! `--store`: a whole fleet, read from its store.

use std::{process::Stdio, time::Duration};

use integration_tests::{
    client::{get, post_json},
    member::{Member, RuleFile, binary_path, run},
    redis::Redis,
    site::Site,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::timeout,
};

use crate::{err, folder, json, out, write};

/// Time limit for a frame: a read of a store that is away takes some seconds.
const A_FRAME: Duration = Duration::from_secs(60);

#[tokio::test]
async fn status_of_a_store_shows_the_whole_fleet() {
    let (site, redis, folder) = (Site::start(), Redis::start(), folder());
    let rules = "- {name: shops, match: \"*\", per: host, rate: 5/s, burst: 20}";
    let fleet = Member::fleet(2, &RuleFile::new(rules).redis(&redis)).await;
    for member in &fleet {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    write(folder.path(), "rules.yaml", &format!("rules:\n  {rules}\n"));
    let url = redis.url();
    let ask = |words: &[&str]| {
        run(folder.path(), &[words, &["--config", "rules.yaml", "--store", &url]].concat())
    };
    let calm = ask(&["status", "--json"]);
    assert_eq!(calm.status.code(), Some(0), "{}", err(&calm));
    let seen = json(&calm);
    assert_eq!(seen["members"].as_array().map(Vec::len), Some(2), "{seen}");
    let scope = &seen["scopes"][0];
    assert_eq!((&scope["rule"], &scope["key"]), (&"shops".into(), &"127.0.0.1".into()), "{seen}");
    assert_eq!((&scope["state"], &scope["rate_limit"]), (&"open".into(), &5.0.into()), "{seen}");
    let path = "/api/v1/scopes/shops/127.0.0.1/cooldown";
    let trip = post_json(fleet[1].admin(), path, "{\"seconds\": 90}").await;
    assert_eq!(trip.status, 200, "{}", trip.text());
    let cooling = ask(&["status"]);
    assert_eq!(cooling.status.code(), Some(1), "{}", err(&cooling));
    for part in ["members 2", "shops/127.0.0.1", "5.00/s", "cooling 1 min", "0/3", "1 cooling"] {
        assert!(out(&cooling).contains(part), "`{part}` is missing:\n{}", out(&cooling));
    }
    assert!(!out(&cooling).contains("redis://"), "a URL may hold a password");
}

#[test]
fn status_reports_a_missing_store() {
    let (folder, nobody) = (folder(), integration_tests::ports::free_address());
    let away = run(folder.path(), &["status", "--store", &format!("redis://:hunter2@{nobody}")]);
    assert_eq!(away.status.code(), Some(1), "{}", err(&away));
    assert!(err(&away).contains("the store is away"), "{}", err(&away));
    assert!(!err(&away).contains("hunter2"), "{}", err(&away));
    let memory = run(folder.path(), &["status", "--store", "memory"]);
    assert_eq!(memory.status.code(), Some(2), "{}", err(&memory));
}

#[tokio::test]
async fn top_of_a_store_draws_the_whole_fleet_again_and_again() {
    let (site, mut redis, folder) = (Site::start(), Redis::start(), folder());
    let rules = "- {name: shops, match: \"*\", per: host, rate: 5/s, burst: 20}";
    let member = Member::start(&RuleFile::new(rules).redis(&redis)).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    write(folder.path(), "rules.yaml", &format!("rules:\n  {rules}\n"));
    let binary = binary_path();
    let line = format!("'{}' top --config rules.yaml --store {}", binary.display(), redis.url());
    // Provides the terminal that `top` requires.
    let mut terminal = Command::new("script")
        .args(["-q", "-f", "-c", &line, "/dev/null"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("`script` is installed");
    let mut screen = terminal.stdout.take().expect("it is piped");
    let calm = drawn(&mut screen, "open").await;
    assert!(calm.contains("members 1") && calm.contains("shops/127.0.0.1"), "{calm}");
    let path = "/api/v1/scopes/shops/127.0.0.1/cooldown";
    assert_eq!(post_json(member.admin(), path, "{\"seconds\": 90}").await.status, 200);
    let cooling = drawn(&mut screen, "cooling 1 min").await;
    redis.kill();
    let away = drawn(&mut screen, "the store is away").await;
    redis.restart();
    let back = drawn(&mut screen, "members ").await;
    for frames in [calm, cooling, away, back] {
        assert!(!frames.contains("redis://"), "a URL may hold a password: {frames}");
    }
}

/// The output from now on, up to `part`.
async fn drawn(screen: &mut (impl AsyncRead + Unpin), part: &str) -> String {
    let mut text = String::new();
    while !text.contains(part) {
        let mut bytes = [0; 4_096];
        let read = timeout(A_FRAME, screen.read(&mut bytes)).await;
        let read = read.unwrap_or_else(|_| panic!("`{part}` is never drawn: {text}"));
        let count = read.expect("the terminal can be read");
        assert!(count > 0, "it ended before it drew `{part}`: {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        assert!(text.len() < 100_000, "`{part}` is not drawn: {text}");
    }
    text
}
