//! A cooldown without visible responses warns once per rule.

use std::net::{Ipv4Addr, TcpListener};

use integration_tests::{
    client::Raw,
    member::{Member, RuleFile},
    wait::wait_until,
};

use crate::SOON;

/// Opens a tunnel to this address of loopback, and ends it.
async fn tunnel(member: &Member, host: &str, port: u16) {
    let mut client = Raw::connect(member.proxy()).await;
    client.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{host}: {head}");
}

#[tokio::test]
async fn the_first_tunnel_of_each_rule_with_a_cooldown_warns_that_responses_are_hidden() {
    // A tunnel is open as soon as its connection is in this backlog.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let member = Member::start(&RuleFile::new(
        "- {name: first, match: \"127.0.0.1\", rate: 1000/s, cooldown: {after: 3}}\n\
         - {name: without, match: \"127.0.0.2\", rate: 1000/s, cooldown: off}\n\
         - {name: intercepted, match: \"127.0.0.3\", intercept: true, cooldown: {after: 3}}\n\
         - {name: last, match: \"127.0.0.4\", rate: 1000/s, cooldown: {after: 3}}",
    ))
    .await;
    for host in ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1", "127.0.0.4"] {
        tunnel(&member, host, port).await;
    }
    let warnings = |rule: &str| {
        let log = member.log();
        log.matches(&format!("rule `{rule}` has a cooldown, but its tunnels")).count()
    };
    // The log is ordered, so earlier lines are complete.
    wait_until("the last one has said it", SOON, async || warnings("last") > 0).await;
    let told = ["first", "without", "intercepted", "last"].map(warnings);
    assert_eq!(told, [1, 0, 0, 1], "{}", member.log());
}
