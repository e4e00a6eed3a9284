//! SIGTERM: the proxy stops accepting, finishes the requests in flight, answers held requests with
//! 503, and exits with 0.

use std::{
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use integration_tests::{
    client::{Raw, get, try_get_direct},
    member::{Member, RuleFile},
    site::{Page, Site},
    wait::wait_until,
};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn requests_in_flight_finish_and_held_ones_get_a_503() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 10m");
    let mut member = Member::start(&file).await;
    site.on("/slow", Page::Held);
    let (proxy, slow, held) = (member.proxy(), site.url("/slow"), site.url("/held"));
    let in_flight = tokio::spawn(async move { get(proxy, &slow).await });
    wait_until("it is in flight", SOON, async || site.count() == 1).await;
    let held = tokio::spawn(async move { get(proxy, &held).await });
    wait_until("the other is held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await > 0.0
    })
    .await;
    member.terminate();
    let refused = held.await.expect("it ends");
    assert_eq!(refused.status, 503);
    assert!(refused.refused().is_some() && refused.header("proxy-status").is_some());
    wait_until("nobody is accepted any more", SOON, async || {
        tokio::net::TcpStream::connect(proxy).await.is_err()
    })
    .await;
    assert!(!in_flight.is_finished(), "what is in flight goes on");
    site.release();
    let finished = in_flight.await.expect("it ends");
    assert_eq!((finished.status, finished.verdict()), (200, Some("ok")));
    assert_eq!(member.exit_code(SOON).await, 0);
    assert_eq!(site.count(), 1, "the held one never went");
}

#[tokio::test]
async fn held_requests_of_an_earlier_rule_file_get_a_503_too() {
    let site = Site::start();
    let rule = |rule: &str| {
        RuleFile::new(&format!("- {{{rule}, match: \"*\", rate: 1/h, burst: 1, max_wait: 2h}}"))
    };
    for other in ["name: renamed", "name: default, per: host"] {
        let mut member = Member::start(&rule("name: default")).await;
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
        let (proxy, url) = (member.proxy(), site.url("/held"));
        let held = tokio::spawn(async move { get(proxy, &url).await });
        let is_held = async || member.metric("tidegate_held_requests", &[]).await > 0.0;
        wait_until("it is held", SOON, is_held).await;
        member.rewrite(&rule(other));
        wait_until("it is reloaded", SOON, async || {
            member.metric("tidegate_config_reloads_total", &[("result", "ok")]).await > 0.0
        })
        .await;
        assert!(is_held().await, "{other}: it is still shown");
        member.terminate();
        assert_eq!(held.await.expect("it ends").status, 503, "{other}");
        assert_eq!(member.exit_code(SOON).await, 0);
    }
}

#[tokio::test]
async fn a_site_that_never_answers_does_not_stop_the_end() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s").with("timeouts: {drain: 1s}");
    let mut member = Member::start(&file).await;
    site.on("/never", Page::Hang);
    let mut client = Raw::connect(member.proxy()).await;
    client
        .send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", site.url("/never"), site.address()))
        .await;
    wait_until("it is in flight", SOON, async || site.count() == 1).await;
    let start = Instant::now();
    member.terminate();
    assert_eq!(member.exit_code(SOON).await, 0);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(900), "it waited only {took:?} for what is in flight");
}

#[tokio::test]
async fn an_idle_member_ends_at_once_also_with_kept_alive_clients() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s").with("timeouts: {drain: 60s}");
    let mut member = Member::start(&file).await;
    let mut kept = integration_tests::client::ProxyClient::connect(member.proxy()).await;
    assert_eq!(kept.get(&site.url("/")).await.status, 200);
    member.terminate();
    assert_eq!(member.exit_code(SOON).await, 0, "long before the end of the drain");
}

#[tokio::test]
async fn readiness_ends_before_the_process_does() {
    let site = Site::start();
    let mut member = Member::start(&RuleFile::one_rule("rate: 100/s")).await;
    let ready = async |member: &Member| {
        try_get_direct(member.admin(), "/readyz").await.map(|answer| answer.status).ok()
    };
    assert_eq!(ready(&member).await, Some(200));
    site.on("/slow", Page::Held);
    let (proxy, slow) = (member.proxy(), site.url("/slow"));
    let in_flight = tokio::spawn(async move { get(proxy, &slow).await.status });
    wait_until("it is in flight", SOON, async || site.count() == 1).await;
    member.terminate();
    wait_until("it is not ready any more", SOON, async || ready(&member).await == Some(503)).await;
    site.release();
    assert_eq!(in_flight.await.expect("it ends"), 200);
    assert_eq!(member.exit_code(SOON).await, 0);
}

#[tokio::test]
async fn with_a_notice_clients_are_served_while_readiness_says_no() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s, burst: 100").with("timeouts: {notice: 2s}");
    let mut member = Member::start(&file).await;
    member.terminate();
    wait_until("it is not ready any more", SOON, async || {
        let answer = try_get_direct(member.admin(), "/readyz").await;
        answer.is_ok_and(|answer| answer.status == 503)
    })
    .await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200, "a load balancer is slow");
    assert_eq!(member.exit_code(SOON).await, 0);
}

#[tokio::test]
async fn systemd_is_notified_of_start_watchdog_and_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(SOON)).expect("a socket takes options");
    let message = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).expect("it says something in time");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let variables = format!("export NOTIFY_SOCKET={} WATCHDOG_USEC=200000", path.display());
    let mut member = Member::start_after(&variables, &RuleFile::one_rule("rate: 100/s")).await;
    assert_eq!(message(), "READY=1\n");
    assert_eq!((message(), message()), ("WATCHDOG=1\n".to_owned(), "WATCHDOG=1\n".to_owned()));
    member.terminate();
    let mut last = message();
    while last == "WATCHDOG=1\n" {
        last = message();
    }
    assert_eq!(last, "STOPPING=1\n");
    assert_eq!(member.exit_code(SOON).await, 0);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100/s").with("timeouts: {drain: 60s}");
    let mut member = Member::start(&file).await;
    site.on("/never", Page::Hang);
    let mut client = Raw::connect(member.proxy()).await;
    client
        .send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", site.url("/never"), site.address()))
        .await;
    wait_until("it is in flight", SOON, async || site.count() == 1).await;
    member.terminate();
    let proxy = member.proxy();
    wait_until("it drains", SOON, async || tokio::net::TcpStream::connect(proxy).await.is_err())
        .await;
    member.signal(Signal::TERM);
    let ended = async || member.exit_status().is_some();
    wait_until("it ends long before the end of the drain", SOON, ended).await;
}
