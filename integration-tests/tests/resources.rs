//! A member that lacks a resource: descriptors, a reader of its log, idle time. It slows down or
//! refuses, but never spins, stops or grows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use integration_tests::{
    client::{ProxyClient, Raw, get, get_direct, try_get},
    load::{crawl, statuses},
    member::{Member, RuleFile},
    redis::Redis,
    site::Site,
    wait::wait_until,
};
use rustix::process::Signal;
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn out_of_descriptors_it_waits_without_spinning_and_recovers_alone() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 1000/s, burst: 1000")).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    member.limit_descriptors(128);
    let told = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..300 {
        // The kernel takes them; the member cannot.
        clients.push(TcpStream::connect(member.proxy()).await.expect("the queue has room"));
    }
    wait_until("it says so", SOON, async || member.log().contains("cannot accept")).await;
    let (cpu, start) = (member.cpu_seconds(), Instant::now());
    wait_until("two seconds of it", SOON, async || start.elapsed() > Duration::from_secs(2)).await;
    let used = (member.cpu_seconds() - cpu) / start.elapsed().as_secs_f64();
    assert!(used < 0.2, "it uses {:.0} % of a processor for waiting", used * 100.0);
    let lines = member.log().lines().filter(|line| line.contains("cannot accept")).count();
    let seconds = told.elapsed().as_secs() + 2;
    assert!(lines as u64 <= seconds, "{lines} lines in {seconds} s");
    drop(clients);
    wait_until("it serves again", SOON, async || {
        try_get(member.proxy(), &site.url("/")).await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
}

#[tokio::test]
async fn it_raises_its_descriptor_limit_and_warns_if_that_is_too_low() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1000/s, burst: 1000");
    let member = Member::start_after("ulimit -Sn 64 && ulimit -Hn 512", &file).await;
    assert_eq!(member.descriptors_at_most(), 512);
    let warning = "may take 20000 descriptors, and the system allows 512";
    wait_until("it says so", SOON, async || member.log().contains(warning)).await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(Raw::connect(member.proxy()).await);
    }
    wait_until("all are there", SOON, async || {
        member.metric("tidegate_client_connections", &[]).await >= 100.0
    })
    .await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn a_shortage_of_descriptors_is_not_blamed_on_the_site() {
    let (known, site) = (Site::start(), Site::start());
    let rule =
        "rate: 1000/s, burst: 1000, cooldown: {after: 1, for: 5m, on: [connection_error, timeout]}";
    let member = Member::start(&RuleFile::one_rule(rule)).await;
    let mut client = ProxyClient::connect(member.proxy()).await;
    assert_eq!(client.get(&known.url("/")).await.status, 200);
    let before = member.take_free_descriptors();
    // An address, and a name that cannot be looked up without a descriptor.
    for url in [site.url("/"), "http://localhost:81/".to_owned()] {
        let answer = client.get(&url).await;
        assert_eq!((answer.status, answer.refused()), (503, Some("queue")), "{}", answer.text());
        assert_eq!(answer.header("proxy-status"), Some("tidegate; error=connection_limit_reached"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(client.get(&known.url("/")).await.status, 200, "what is connected goes on");
    member.limit_descriptors(before);
    assert_eq!(client.get(&site.url("/")).await.status, 200, "no cooldown was tripped");
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn a_thousand_idle_clients_cost_little_and_do_not_keep_others_out() {
    const CLIENTS: usize = 1_000;
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1000/s, burst: 1000")
        .with("limits: {connections: 5000, per_client: 5000}");
    let member = Member::start(&file).await;
    crawl(&[member.proxy()], 20, &site.url("/"), 200).await;
    let memory = member.resident_bytes();
    let mut idle = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        let mut client = Raw::connect(member.proxy()).await;
        client.send(format!("GET {} HTTP/1.1\r\nHo", site.url("/"))).await;
        idle.push(client);
    }
    wait_until("all are there", SOON, async || {
        member.metric("tidegate_client_connections", &[]).await >= 1_000.0
    })
    .await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    // 3 KiB; with a buffer for each it would be more than 16.
    let each = member.resident_bytes().saturating_sub(memory) / 1_000;
    assert!(each <= 8 << 10, "{each} bytes for each connection");
    drop(idle);
    wait_until("they are gone", SOON, async || {
        member.metric("tidegate_client_connections", &[]).await < 10.0
    })
    .await;
}

#[tokio::test]
async fn a_held_request_takes_little_memory() {
    const HELD: u32 = 1_000;
    let site = Site::start();
    let file =
        RuleFile::one_rule("rate: 1000/s, burst: 1000, quota: 20/h, max_wait: 24h, cooldown: off")
            .with("limits: {connections: 5000, per_client: 5000}");
    let member = Member::start(&file).await;
    crawl(&[member.proxy()], 20, &site.url("/"), 20).await;
    let memory = member.resident_bytes();
    let mut held = Vec::new();
    for _ in 0..HELD {
        let mut client = Raw::connect(member.proxy()).await;
        client
            .send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", site.url("/"), site.address()))
            .await;
        held.push(client);
    }
    wait_until("all are held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await > f64::from(HELD) - 0.5
    })
    .await;
    // 18 KiB in a build without optimisation, its connection and hyper's two buffers of 8 KiB included.
    let each = member.resident_bytes().saturating_sub(memory) / u64::from(HELD);
    assert!(each <= 22 << 10, "{each} bytes for each held request");
    drop(held);
    wait_until("they are gone", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await < 0.5
    })
    .await;
}

#[tokio::test]
async fn thousands_of_sites_leave_no_memory_behind() {
    let rules = "- {name: sites, match: \"*\", per: host, rate: 1000/s, burst: 1}";
    let member = Member::start(&RuleFile::new(rules)).await;
    let mut client = ProxyClient::connect(member.admin()).await;
    let mut visit = async |from: usize, to: usize| {
        for n in from..to {
            let body = format!(r#"{{"url": "http://site-{n}.example/"}}"#);
            let request = Request::post("/api/v1/acquire")
                .header(header::HOST, member.admin().to_string())
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from(body)))
                .expect("it is a request");
            let answer = client.send(request).await.expect("the port answers");
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    };
    visit(0, 2_000).await;
    let memory = member.resident_bytes();
    visit(2_000, 6_000).await;
    let grown = member.resident_bytes().saturating_sub(memory) >> 10;
    // A scope that is kept costs more than two KiB.
    assert!(grown < 6 << 10, "{grown} KiB more after 4,000 more sites");
    let scopes = member.status().await["scopes_total"].as_u64().expect("a number");
    assert!(scopes <= 2_048, "{scopes} scopes are kept");
}

#[tokio::test]
async fn an_unread_log_stops_no_request() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 100000/s, burst: 100000").with("log: {access: true}");
    let member = Member::start(&file).await;
    let path = format!("/{}", "a".repeat(400));
    let unread = member.stop_reading();
    let answers = crawl(&[member.proxy()], 8, &site.url(&path), 5_500).await;
    assert_eq!(statuses(&answers), [(200, 5_500)].into());
    let dropped = member.metric("tidegate_log_lines_dropped_total", &[]).await;
    assert!(dropped > 0.0, "lines that nobody took are counted");
    drop(unread);
    wait_until("the log goes on", SOON, async || {
        get(member.proxy(), &site.url("/after")).await;
        member.log().contains("/after")
    })
    .await;
}

/// The log's destination accepts nothing, like a full disk.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_no_request() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1000/s, burst: 1000").with("log: {access: true}");
    let mut member = Member::start_after("exec >/dev/full 2>/dev/full", &file).await;
    let answers = crawl(&[member.proxy()], 4, &site.url("/"), 200).await;
    assert_eq!(statuses(&answers), [(200, 200)].into());
    wait_until("lines that could not be written are counted", SOON, async || {
        member.metric("tidegate_log_lines_dropped_total", &[]).await > 0.0
    })
    .await;
    member.terminate();
    assert_eq!(member.exit_code(SOON).await, 0);
}

#[tokio::test]
async fn an_access_file_that_cannot_be_written_is_reported_once() {
    let site = Site::start();
    let file =
        RuleFile::one_rule("rate: 1000/s, burst: 1000").with("log: {access_file: /dev/full}");
    let member = Member::start(&file).await;
    let answers = crawl(&[member.proxy()], 2, &site.url("/"), 20).await;
    assert_eq!(statuses(&answers), [(200, 20)].into());
    wait_until("each line is counted", SOON, async || {
        member.metric("tidegate_log_lines_dropped_total", &[]).await >= 20.0
    })
    .await;
    let log = member.log();
    let said = "log.access_file: /dev/full cannot be written, its lines are lost: No space left";
    assert_eq!(log.matches(said).count(), 1, "{log}");
}

#[tokio::test]
async fn a_log_line_is_one_line_of_json_for_any_request() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1000/s, burst: 1000")
        .with("log: {access: true, format: json, level: debug}")
        .with("auth: {users: {crawler: open-sesame}, networks: [\"127.0.0.0/8\"]}");
    let member = Member::start(&file).await;
    let at = site.address();
    for path in [
        "/%0d%0aforged%1b[31m".to_owned(),
        "/{\"a\":\"b\\c\"}".to_owned(),
        format!("/{}", "long".repeat(3_000)),
        "/found?token=hunter2&x=1".to_owned(),
        "/\u{202e}\u{2028}".to_owned(),
    ] {
        let mut client = Raw::connect(member.proxy()).await;
        let head = format!(
            "GET http://{at}{path} HTTP/1.1\r\nHost: {at}\r\nUser-Agent: \"x\\\r\nProxy-Authorization: Basic aHVudGVyMg==\r\nConnection: close\r\n\r\n"
        );
        client.send(head).await;
        client.rest(SOON).await;
    }
    wait_until("the log tells of them", SOON, async || member.log().contains("/found")).await;
    let log = member.log();
    for line in log.lines() {
        let value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(value.is_object() && line.len() < 4 << 10, "{} bytes: {line:.200}", line.len());
        assert!(!line.contains('\u{1b}') && !line.contains('\u{202e}'), "{line}");
    }
    for secret in ["hunter2", "aHVudGVyMg", "open-sesame"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}

#[tokio::test]
async fn a_hundred_reloads_and_scrapes_lose_no_request() {
    let site = Site::start();
    let rule = |burst: usize| {
        RuleFile::one_rule(&format!("rate: 100000/s, burst: {burst}")).with("timeouts: {idle: 60s}")
    };
    let member = Member::start(&rule(1_000)).await;
    let load = tokio::spawn({
        let (proxy, url) = (member.proxy(), site.url("/"));
        async move { crawl(&[proxy], 8, &url, 3_000).await }
    });
    for n in 0..100 {
        member.rewrite(&rule(1_000 + n));
        member.signal(Signal::HUP);
        assert_eq!(get_direct(member.admin(), "/metrics").await.status, 200);
    }
    assert_eq!(statuses(&load.await.expect("the load ends")), [(200, 3_000)].into());
    wait_until("the last file is in force", SOON, async || {
        let status = member.status().await;
        status["scopes"][0]["burst"].as_u64() == Some(1_099)
    })
    .await;
    let panics = member.metric("tidegate_panics_total", &[]).await;
    assert!(panics.abs() < 1e-9, "{panics} panics");
}

#[tokio::test]
async fn a_rolling_restart_fails_no_request_and_brings_no_burst() {
    // Requests that are delayed on a stalled machine arrive together; at this rate they are not a
    // burst.
    const RATE: f64 = 15.0;
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("rate: 15/s, burst: 5").redis(&redis);
    let mut fleet = Member::fleet(3, &file).await;
    let proxies = std::sync::Arc::new(parking_lot::Mutex::new(
        fleet.iter().map(Member::proxy).collect::<Vec<_>>(),
    ));
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for first in 0..6 {
        let (proxies, done, url) = (proxies.clone(), done.clone(), site.url("/"));
        clients.spawn(async move {
            let mut answered = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut got = None;
                // A client with three proxies that uses the next one if one does not respond.
                for turn in first..first + 6 {
                    let proxy = proxies.lock()[turn % 3];
                    got = try_get(proxy, &url).await.ok().filter(|answer| answer.status == 200);
                    if got.is_some() {
                        break;
                    }
                }
                assert!(got.is_some(), "no proxy answers");
                answered += 1;
            }
            answered
        });
    }
    wait_until("the load runs", SOON, async || site.count() > 20).await;
    for (n, member) in fleet.iter_mut().enumerate() {
        member.terminate();
        assert_eq!(member.exit_code(SOON).await, 0);
        *member = Member::start(&file).await;
        proxies.lock()[n] = member.proxy();
        let before = site.count();
        wait_until("it goes on", SOON, async || site.count() > before + 20).await;
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    let answered: usize = clients.join_all().await.into_iter().sum();
    assert!(answered > 80, "{answered} answers");
    let excess = site.excess(RATE, 5.0);
    assert!(excess <= 3.0, "{excess:.2} requests too many over a rolling restart");
}
