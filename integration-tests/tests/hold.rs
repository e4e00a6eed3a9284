//! Held requests: how long, how many, in which order, and what happens when their clients
//! disconnect.

use std::time::{Duration, Instant};

use integration_tests::{
    client::{ProxyClient, Raw, delete, get, get_request, get_with, post_json},
    load::{crawl, statuses},
    member::{Member, RuleFile},
    redis::Redis,
    site::Site,
    wait::wait_until,
};

const SOON: Duration = Duration::from_secs(5);

/// Waits until this many requests are held.
async fn held(member: &Member, n: u32) {
    wait_until(&format!("{n} requests are held"), SOON, async || {
        let held = member.metric("tidegate_held_requests", &[("rule", "default")]).await;
        (held - f64::from(n)).abs() < 1e-9
    })
    .await;
}

/// One request through `member`, in the background.
fn spawn_get(member: &Member, url: String) -> tokio::task::JoinHandle<u16> {
    let proxy = member.proxy();
    tokio::spawn(async move { get(proxy, &url).await.status })
}

#[tokio::test]
async fn requests_wait_for_their_token_instead_of_being_refused() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 10/s, burst: 2")).await;
    let start = Instant::now();
    let answers = crawl(&[member.proxy()], 5, &site.url("/"), 12).await;
    let took = start.elapsed().as_secs_f64();
    assert_eq!(statuses(&answers), [(200, 12)].into());
    assert!((0.99..8.0).contains(&took), "{took:.2} s for ten waits of 0.1 s");
    let metrics = member.metrics().await;
    assert!((metrics.sum("tidegate_hold_seconds_count", &[]) - 12.0).abs() < 1e-9);
    assert!(metrics.sum("tidegate_hold_seconds_sum", &[]) > 0.5);
}

#[tokio::test]
async fn a_wait_longer_than_max_wait_is_refused_at_once() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 40s")).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (429, Some("limit")));
    assert!(answer.took < Duration::from_secs(20), "refused after {:?}", answer.took);
    let wait: u64 = answer.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((50..=60).contains(&wait), "Retry-After: {wait} for a token a minute");
    assert_eq!(site.count(), 1, "the refused one never reached the site");
}

#[tokio::test]
async fn a_client_may_shorten_its_hold() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 10m")).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let answer = get_with(member.proxy(), &site.url("/"), "prefer", "wait=1").await;
    assert_eq!((answer.status, answer.refused()), (429, Some("limit")));
    assert!(answer.took < Duration::from_secs(20), "refused after {:?}", answer.took);
}

#[tokio::test]
async fn a_request_that_may_not_wait_is_judged_by_the_first_answer_of_the_store() {
    let site = Site::start();
    let redis = Redis::start();
    for (wait, prefer, cooldown) in
        [("0s", "wait=9", "off"), ("0s", "wait=9", "{after: 3}"), ("2m", "wait=0", "{after: 3}")]
    {
        let rule = format!("rate: 1/h, burst: 3, max_wait: {wait}, cooldown: {cooldown}");
        assert!(redis.command(&["FLUSHALL"]).starts_with("+OK"));
        let member = Member::start(&RuleFile::one_rule(&rule).redis(&redis)).await;
        let mut statuses = Vec::new();
        for _ in 0..5 {
            let answer = get_with(member.proxy(), &site.url("/"), "prefer", prefer).await;
            statuses.push((answer.status, answer.refused().map(str::to_owned)));
        }
        let limit = || (429, Some("limit".to_owned()));
        let ok = || (200, None);
        assert_eq!(statuses, [ok(), ok(), ok(), limit(), limit()], "{rule} {prefer}");
    }
    let unlimited = RuleFile::one_rule("max_wait: 0s, cooldown: {after: 3}").redis(&redis);
    let member = Member::start(&unlimited).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn a_cooldown_longer_than_max_wait_is_refused_at_once() {
    let site = Site::start();
    let file = RuleFile::one_rule("max_wait: 40s, cooldown: {after: 1, for: 1m}");
    let member = Member::start(&file).await;
    site.answer_everything_with(Some(integration_tests::site::Page::Forbidden));
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 403);
    wait_until("it trips", SOON, async || {
        member.metric("tidegate_cooldown_active", &[]).await > 0.0
    })
    .await;
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (503, Some("cooldown")));
    assert!(answer.took < Duration::from_secs(20), "refused after {:?}", answer.took);
    let wait: u64 = answer.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((50..=60).contains(&wait), "Retry-After: {wait} for a cooldown of a minute");
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 1/m, burst: 1, max_wait: 1h, queue: 2");
    let member = Member::start(&file).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let waiting = [spawn_get(&member, site.url("/a")), spawn_get(&member, site.url("/b"))];
    held(&member, 2).await;
    let answer = get(member.proxy(), &site.url("/c")).await;
    assert_eq!((answer.status, answer.refused()), (503, Some("queue")));
    let labels = [("rule", "default"), ("reason", "queue")];
    assert!((member.metric("tidegate_refused_total", &labels).await - 1.0).abs() < 1e-9);
    for request in waiting {
        request.abort();
    }
    held(&member, 0).await;
}

#[tokio::test]
async fn a_client_that_disconnects_while_held_takes_no_token_and_is_counted() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 30/m, burst: 1")).await;
    let start = Instant::now();
    assert_eq!(get(member.proxy(), &site.url("/first")).await.status, 200);
    let mut gone = Vec::new();
    for n in 0..20 {
        let mut client = Raw::connect(member.proxy()).await;
        let url = site.url(&format!("/gone/{n}"));
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {}\r\n\r\n", site.address())).await;
        gone.push(client);
    }
    held(&member, 20).await;
    drop(gone);
    held(&member, 0).await;
    let left = member.metric("tidegate_held_gone_total", &[("rule", "default")]).await;
    assert!((left - 20.0).abs() < 1e-9, "{left} of 20 are counted");
    assert_eq!(get(member.proxy(), &site.url("/second")).await.status, 200);
    let took = start.elapsed().as_secs_f64();
    assert!(took < 3.9, "{took:.2} s: the second request waited for tokens that nobody used");
    let granted = member.metric("tidegate_tokens_granted_total", &[]).await;
    assert!((granted - 2.0).abs() < 1e-9, "{granted} tokens for two requests");
    let paths: Vec<_> = site.arrivals().into_iter().map(|arrival| arrival.path).collect();
    assert_eq!(paths, ["/first", "/second"]);
}

#[tokio::test]
async fn fifo_lets_requests_go_in_the_order_in_which_they_came() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("rate: 5/s, burst: 1, order: fifo")).await;
    assert_eq!(get(member.proxy(), &site.url("/0")).await.status, 200);
    let mut waiting = Vec::new();
    for n in 1..=4 {
        waiting.push(spawn_get(&member, site.url(&format!("/{n}"))));
        // The rate lets some pass; only the order matters.
        wait_until("it is held or gone", SOON, async || {
            let queued = member.metric("tidegate_held_requests", &[]).await;
            let sent = u32::try_from(site.count()).expect("a few");
            queued + f64::from(sent) >= f64::from(n + 1)
        })
        .await;
    }
    for request in waiting {
        assert_eq!(request.await.expect("it ends"), 200);
    }
    let paths: Vec<_> = site.arrivals().into_iter().map(|arrival| arrival.path).collect();
    assert_eq!(paths, ["/0", "/1", "/2", "/3", "/4"]);
}

#[tokio::test]
async fn urgent_requests_go_first() {
    const COOLDOWN: &str = "/api/v1/scopes/default/cooldown";
    let site = Site::start();
    // Slow enough that no request overtakes another one in flight.
    let file = RuleFile::one_rule("rate: 2/s, burst: 1, cooldown: {probe: false, ramp: 0s}");
    let member = Member::start(&file).await;
    let paused = post_json(member.admin(), COOLDOWN, r#"{"seconds": 60}"#).await;
    assert_eq!(paused.status, 200, "{}", paused.text());
    let mut waiting = Vec::new();
    for (priority, number) in [("u=7", 1), ("i", 2), ("u=0, i", 3), ("u=1", 4)] {
        let (proxy, url) = (member.proxy(), site.url(&format!("/{priority}").replace(", ", "-")));
        waiting.push(tokio::spawn(async move {
            get_with(proxy, &url, "priority", priority).await.status
        }));
        held(&member, number).await;
    }
    assert_eq!(delete(member.admin(), COOLDOWN).await.status, 200);
    for request in waiting {
        assert_eq!(request.await.expect("it ends"), 200);
    }
    let paths: Vec<_> = site.arrivals().into_iter().map(|arrival| arrival.path).collect();
    assert_eq!(paths, ["/u=0-i", "/u=1", "/i", "/u=7"]);
    let metrics = member.metrics().await;
    let by_urgency = |name| ["0", "1", "3", "7"].map(|u| metrics.sum(name, &[("urgency", u)]));
    let released = by_urgency("tidegate_urgency_requests_total");
    assert!(released.iter().all(|count| (count - 1.0).abs() < 1e-9), "{released:?}");
    let held = by_urgency("tidegate_urgency_hold_seconds_total");
    assert!(held.iter().all(|seconds| *seconds > 0.0), "{held:?}");
    let all = metrics.sum("tidegate_hold_seconds_sum", &[]);
    assert!((held.iter().sum::<f64>() - all).abs() < 1e-6, "{held:?} of {all}");
}

#[tokio::test]
async fn a_request_body_is_not_asked_for_while_its_request_is_held() {
    let site = Site::start();
    site.on("/upload", integration_tests::site::Page::Upload);
    let member = Member::start(&RuleFile::one_rule("rate: 1/s, burst: 1")).await;
    let first = Instant::now();
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let mut client = Raw::connect(member.proxy()).await;
    let (url, host) = (site.url("/upload"), site.address());
    client
        .send(format!(
            "POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        ))
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 100 "));
    let asked = first.elapsed();
    assert!(asked >= Duration::from_millis(900), "the body was asked for after {asked:?}");
    client.send("hello").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn clients_take_turns_so_that_many_connections_do_not_starve_one() {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 20/s, burst: 1, order: fair")
        .with("auth: {users: {greedy: one, modest: two}}");
    let member = Member::start(&file).await;
    // base64 of `greedy:one` and `modest:two`
    let (greedy, modest) = ("Basic Z3JlZWR5Om9uZQ==", "Basic bW9kZXN0OnR3bw==");
    let (proxy, url) = (member.proxy(), site.url("/greedy"));
    let mut crowd = Vec::new();
    for _ in 0..30 {
        let url = url.clone();
        crowd.push(tokio::spawn(async move {
            get_with(proxy, &url, "proxy-authorization", greedy).await.status
        }));
    }
    wait_until("the crowd is held", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await > 20.0
    })
    .await;
    let mut request = get_request(&site.url("/modest"));
    request.headers_mut().insert("proxy-authorization", modest.parse().expect("clean"));
    let mut client = ProxyClient::connect(proxy).await;
    let before = site.count();
    assert_eq!(client.send(request).await.expect("an answer").status, 200);
    let passed = site.count() - before;
    assert!(passed < 10, "{passed} of those that came before it had their turn first");
    for request in crowd {
        assert_eq!(request.await.expect("it ends"), 200);
    }
}
