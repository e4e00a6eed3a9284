//! Counts the instructions of a request. The number does not depend on time or load, and the test
//! fails if it grows by a tenth.
//!
//! callgrind counts user mode only. Compilers differ, so the bound is a ratio to a bare hyper proxy
//! (`bench floor`), built by the same compiler and counted in the same run. Client and site are
//! threads of this program.
#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, path::Path, process::Command, thread};

use integration_tests::{
    callgrind::Counted,
    counting::{Asker, PAGE, site},
    member::{RuleFile, binary_path},
    ports::free_address,
};

/// Requests before the count: connections, pools and tables are made then.
const FIRST: usize = 50;
/// How often requests are counted. The least number counts: on a busy machine, requests come so late that the connection
/// has dropped its buffers, and what runs every second runs more often per request.
const ROUNDS: usize = 50;
/// Requests of a round.
const COUNTED: usize = 8;

/// Instructions of one request, on a kept-alive connection.
fn per_request(proxy: Counted, site: SocketAddr) -> f64 {
    let mut client = Asker::connect(proxy.at(), site);
    client.ask(FIRST);
    let least = proxy.least_of(ROUNDS, || client.ask(COUNTED));
    #[allow(clippy::cast_precision_loss)]
    let (least, counted) = (least as f64, COUNTED as f64);
    least / counted
}

fn floor(site: SocketAddr) -> f64 {
    let floor = |at: SocketAddr, _: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        command.args(["floor", &at.to_string()]);
        command
    };
    per_request(Counted::start(floor), site)
}

fn tidegate(rule: &str, site: SocketAddr) -> f64 {
    let file = RuleFile::one_rule(rule).with("log: {level: error}");
    let tidegate = |at: SocketAddr, folder: &Path| {
        let path = folder.join("tidegate.yaml");
        std::fs::write(&path, file.render(at, free_address(), folder)).unwrap();
        let mut command = Command::new(binary_path());
        command.arg("--config").arg(path);
        command
    };
    per_request(Counted::start(tidegate), site)
}

#[test]
fn a_request_takes_no_more_instructions_than_it_did() {
    const FULL: &str = "rate: 1000000/s, burst: 1000000, cooldown: {after: 1000}";
    // Without optimisation other things cost most than with it.
    let (bare, full) = if cfg!(debug_assertions) { (1.4, 1.95) } else { (1.14, 1.49) };
    let site = site(PAGE);
    let ratios = thread::scope(|scope| {
        let floor = scope.spawn(|| floor(site));
        let kinds = [("nothing limited", "action: bypass", bare), ("limited, a page", FULL, full)];
        let counts = kinds
            .map(|(what, rule, bound)| (what, bound, scope.spawn(move || tidegate(rule, site))));
        let floor = floor.join().unwrap();
        counts.map(|(what, bound, count)| (what, bound, count.join().unwrap() / floor))
    });
    let grown: Vec<String> = ratios
        .into_iter()
        .filter(|(_, bound, ratio)| *ratio > bound * 1.1)
        .map(|(what, bound, ratio)| {
            format!("{what}: {ratio:.2} times a bare proxy's instructions, not {bound}")
        })
        .collect();
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}
