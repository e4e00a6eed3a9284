//! Faults between a member and its Redis, and invalid replies of Redis: no request waits for them,
//! no member exceeds the limits, and everything recovers afterwards.

use std::time::{Duration, Instant};

use bytes::Bytes;
use integration_tests::{
    client::get,
    load::{crawl, statuses},
    member::{Member, RuleFile},
    redis::Redis,
    relay::{Fault, Relay},
    site::{Page, Site},
    wait::wait_until,
};

mod errors;

const SOON: Duration = Duration::from_secs(20);
/// The store's timeout in these tests; a busy machine stalls for less.
const TIMEOUT: Duration = Duration::from_millis(500);

fn rules(keys: &str, url: &str, on_failure: &str) -> RuleFile {
    let store = format!("{{url: \"{url}\", timeout: 500ms, on_failure: {on_failure}}}");
    RuleFile::one_rule(keys).store(&store)
}

async fn nothing_panicked(member: &Member) {
    let panics = member.metric("tidegate_panics_total", &[]).await;
    assert!(panics.abs() < 1e-9, "{panics} panics:\n{}", member.log());
}

/// A bulk string of ten megabytes.
fn ten_megabytes() -> Bytes {
    let size = 10_000_000;
    [format!("${size}\r\n").into_bytes(), vec![b'x'; size], b"\r\n".to_vec()].concat().into()
}

#[tokio::test]
async fn requests_continue_and_the_store_recovers_after_any_fault_of_the_line() {
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let member = Member::start(&rules("rate: 1000/s, burst: 1000", &relay.url(), "open")).await;
    let url = site.url("/");
    member.store_is(true).await;
    for fault in [
        Fault::Silence,
        Fault::Reset,
        Fault::CutAfter(3),
        Fault::Drip,
        Fault::LoseReplies,
        Fault::Say(Bytes::from_static(b"\x16\x03\x01 this is no Redis\r\n\r\n")),
        Fault::Say(Bytes::from_static(b"*1000000000\r\n")),
        Fault::Say(Bytes::from_static(b"*3\r\n$4\r\nopen\r\n$-1\r\n:9223372036854775807\r\n")),
        Fault::Say(ten_megabytes()),
    ] {
        assert_eq!(get(member.proxy(), &url).await.status, 200);
        let memory = member.resident_bytes();
        relay.set(fault.clone());
        for n in 0..4 {
            let answer = get(member.proxy(), &url).await;
            let what = format!("{:.60}: request {n}", format!("{fault:?}"));
            assert_eq!(answer.status, 200, "{what}");
            assert!(
                answer.took < TIMEOUT * 2 + Duration::from_secs(1),
                "{what}: {:?}",
                answer.took
            );
        }
        let grown = member.resident_bytes().saturating_sub(memory) >> 20;
        assert!(grown < 100, "{grown} MiB more after {fault:.20?}");
        relay.set(Fault::None);
        member.store_is(true).await;
    }
    nothing_panicked(&member).await;
    let errors = member.metric("tidegate_store_errors_total", &[]).await;
    assert!(errors > 0.0, "failed calls are counted");
}

#[tokio::test]
async fn a_silently_dead_connection_is_replaced() {
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let member = Member::start(&rules("rate: 1000/s, burst: 1000", &relay.url(), "open")).await;
    member.store_is(true).await;
    relay.set(Fault::Forgotten);
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    member.store_is(false).await;
    member.store_is(true).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
}

#[tokio::test]
async fn a_store_that_is_away_is_not_stormed_with_connections() {
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let member = Member::start(&rules("rate: 1000/s, burst: 1000", &relay.url(), "open")).await;
    member.store_is(true).await;
    relay.set(Fault::Reset);
    member.store_is(false).await;
    let (before, start) = (relay.connections(), Instant::now());
    while start.elapsed() < Duration::from_secs(2) {
        get(member.proxy(), &site.url("/")).await;
    }
    let tries = relay.connections() - before;
    // Two connections, each tried again after 50 ms to 1 s.
    assert!((1..100).contains(&tries), "{tries} connections in two seconds");
    relay.set(Fault::None);
    member.store_is(true).await;
}

#[tokio::test]
async fn a_reply_that_is_lost_costs_a_token_at_most_and_is_never_a_free_pass() {
    const BURST: usize = 20;
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let keys = "rate: 1/h, burst: 20, max_wait: 1s";
    let member = Member::start(&rules(keys, &relay.url(), "closed")).await;
    member.store_is(true).await;
    relay.set(Fault::LoseReplies);
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (503, Some("store")));
    assert_eq!(site.count(), 0);
    relay.set(Fault::None);
    member.store_is(true).await;
    let answers = crawl(&[member.proxy()], 1, &site.url("/"), BURST + 5).await;
    let passed = statuses(&answers)[&200];
    assert_eq!(site.count(), passed);
    // The lost tickets of one call; a member takes a handful at most.
    assert!((BURST - 1..=BURST).contains(&passed), "{passed} passed of {BURST}");
}

#[tokio::test]
async fn a_thousand_held_requests_on_a_frozen_store_cost_little_memory() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = rules("rate: 1/m, burst: 1, max_wait: 24h", &redis.url(), "local")
        .with("limits: {per_client: 2000}");
    let member = Member::start(&file).await;
    member.store_is(true).await;
    get(member.proxy(), &site.url("/")).await;
    redis.freeze();
    let memory = member.resident_bytes();
    let mut waiting = Vec::new();
    for _ in 0..1_000 {
        let mut client = integration_tests::client::Raw::connect(member.proxy()).await;
        let (url, host) = (site.url("/"), site.address());
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        waiting.push(client);
    }
    wait_until("all are held", SOON, async || {
        // All requests except those that the member sends on its own during the outage.
        member.metric("tidegate_held_requests", &[]).await > 990.0
    })
    .await;
    let grown = member.resident_bytes().saturating_sub(memory) >> 10;
    assert!(grown < 50 << 10, "{grown} KiB for a thousand held requests");
    drop(waiting);
    wait_until("they are gone", SOON, async || {
        member.metric("tidegate_held_requests", &[]).await < 1.0
    })
    .await;
    redis.thaw();
    member.store_is(true).await;
}

/// Three members that know of each other, at 30/s. The last one's connection to Redis is this
/// relay.
async fn three_of_whom_one_is_behind(relay: &Relay, redis: &Redis) -> Vec<Member> {
    let keys = "rate: 30/s, burst: 3";
    let mut fleet = Member::fleet(2, &rules(keys, &redis.url(), "local")).await;
    fleet.push(Member::start(&rules(keys, &relay.url(), "local")).await);
    for member in &fleet {
        member.knows_of(3).await;
    }
    fleet
}

#[tokio::test]
async fn one_of_three_that_is_cut_off_keeps_to_its_share_and_comes_back() {
    const RATE: f64 = 30.0;
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let fleet = three_of_whom_one_is_behind(&relay, &redis).await;
    relay.set(Fault::Silence);
    fleet[2].store_is(false).await;
    site.forget();
    let proxies: Vec<_> = fleet.iter().map(Member::proxy).collect();
    let answers = crawl(&proxies, 4, &site.url("/"), 120).await;
    assert_eq!(statuses(&answers), [(200, 120)].into());
    // The others may use the whole rate, and the isolated member a third of it in addition.
    let excess = site.excess(RATE * 4.0 / 3.0, 3.0 + 1.0);
    assert!(excess <= 3.0, "{excess:.2} requests too many while one is cut off");
    relay.set(Fault::None);
    fleet[2].store_is(true).await;
    site.forget();
    let answers = crawl(&proxies, 4, &site.url("/"), 60).await;
    assert_eq!(statuses(&answers), [(200, 60)].into());
    let excess = site.excess(RATE, 3.0);
    assert!(excess <= 3.0, "{excess:.2} requests too many after its return");
}

#[tokio::test]
async fn one_of_three_that_is_cut_off_for_a_moment_sends_nothing_on_top() {
    const RATE: f64 = 30.0;
    /// How long it pauses, minus the possible delay of its heartbeat and its connection.
    const STILL: f64 = 2.0;
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let fleet = three_of_whom_one_is_behind(&relay, &redis).await;
    let load = tokio::spawn({
        let proxies: Vec<_> = fleet.iter().map(Member::proxy).collect();
        let url = site.url("/");
        async move { crawl(&proxies, 4, &url, 150).await }
    });
    wait_until("the load runs", SOON, async || site.count() > 30).await;
    // The first requests made connections, which on a busy machine takes each of them another time.
    site.forget();
    let begun = Instant::now();
    relay.set(Fault::Silence);
    fleet[2].store_is(false).await;
    let before = site.count();
    wait_until("the others go on", SOON, async || site.count() > before + 20).await;
    relay.set(Fault::None);
    let away = begun.elapsed().as_secs_f64();
    fleet[2].store_is(true).await;
    assert_eq!(statuses(&load.await.expect("the load ends")), [(200, 150)].into());
    let excess = site.excess(RATE, 3.0);
    // On a machine that is held up for seconds, it has its share of the rest.
    let allowed = 3.0 + (away - STILL).max(0.0) * RATE / 3.0;
    assert!(excess <= allowed, "{excess:.2} requests too many in {away:.2} s");
}

#[tokio::test]
async fn idle_scopes_leave_nothing_in_redis() {
    let (redis, site) = (Redis::start(), Site::start());
    let rules = "- {name: sites, match: \"*\", per: host, rate: 1000/s, burst: 10, learn: false}";
    let store = format!("{{url: \"{}\", timeout: 2s}}", redis.url());
    let member = Member::start(&RuleFile::new(rules).store(&store)).await;
    member.store_is(true).await;
    let port = site.address().port();
    for host in 2..60 {
        // Nothing listens there, but each is a scope of its own.
        get(member.proxy(), &format!("http://127.0.0.{host}:{port}/")).await;
    }
    let keys = redis.command(&["DBSIZE"]);
    let count: usize = keys.trim_start_matches(':').trim().parse().expect("a number");
    assert!(count > 30, "each scope has its keys: {count}");
    let keys = redis.command(&["KEYS", "*"]);
    let of_rules = |line: &&str| line.ends_with("}:m");
    assert_eq!(keys.split("\r\n").filter(of_rules).count(), 1, "one for the rule: {keys}");
    // PTTL shows the longest TTL of the other keys: minutes, not days.
    let others = keys.split("\r\n").filter(|l| l.contains("tidegate:") && !of_rules(l));
    for line in others {
        let ttl = redis.command(&["PTTL", line]);
        let ttl: i64 = ttl.trim_start_matches(':').trim().parse().expect("a number");
        assert!((0..=3_600_000).contains(&ttl) || ttl == -2, "{line}: {ttl} ms");
    }
}

#[tokio::test]
async fn nonsense_news_is_ignored() {
    let (redis, site) = (Redis::start(), Site::start());
    let member =
        Member::start(&rules("cooldown: {after: 1, for: 1m}", &redis.url(), "local")).await;
    member.store_is(true).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let long = "x".repeat(1_000_000);
    for message in [
        "",
        "\x1f\x1f\x1f\x1f\x1f\x1f",
        "nobody\x1f\x1f1\x1fcooling\x1f60000000\x1f3\x1fx",
        "default\x1f\x1f-1\x1fcooling\x1f60000000\x1f3\x1fx",
        "default\x1f\x1f99999999999999999999\x1fcooling\x1f1\x1f3\x1fx",
        "default\x1f\x1f1\x1fcooling\x1fnever\x1fNaN\x1fx",
        "\u{0}\u{1b}[31m",
        &long,
    ] {
        redis.command(&["PUBLISH", "tidegate:news", message]);
    }
    redis.command(&["PUBLISH", "tidegate:news", "last"]);
    for _ in 0..5 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    nothing_panicked(&member).await;
    site.on("/wall", Page::Forbidden);
    get(member.proxy(), &site.url("/wall")).await;
    wait_until("its own blocks still trip", SOON, async || {
        member.metric("tidegate_cooldown_active", &[]).await > 0.0
    })
    .await;
}
