//! Errors of Redis: each is counted by its kind, and requests continue without the store.

use super::*;

/// How often members retry a store that is away, per second, plus the test's own calls.
const KNOCKS: f64 = 30.0;

async fn errors(member: &Member, kind: &str) -> f64 {
    member.metric("tidegate_store_errors_total", &[("kind", kind)]).await
}

/// Requests get responses while the store fails with `kind`; afterwards it is used again.
async fn goes_on(member: &Member, site: &Site, kind: &str) {
    wait_until(&format!("{kind} is counted"), SOON, async || {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200, "{kind}");
        errors(member, kind).await > 0.0
    })
    .await;
}

#[tokio::test]
async fn every_error_has_its_kind() {
    let (redis, site) = (Redis::start(), Site::start());
    let relay = Relay::before(redis.address());
    let member = Member::start(&rules("rate: 1000/s, burst: 1000", &relay.url(), "local")).await;
    for (reply, kind) in [
        ("-OOM command not allowed when used memory > 'maxmemory'.", "oom"),
        ("-READONLY You can't write against a read only replica.", "readonly"),
        ("-LOADING Redis is loading the dataset in memory", "loading"),
        ("-MISCONF Redis is configured to save RDB snapshots", "misconf"),
        ("-BUSY Redis is busy running a script.", "busy"),
        ("-NOPERM this user has no permissions to run the 'evalsha' command", "noperm"),
        ("-NOAUTH Authentication required.", "auth"),
        ("-MOVED 3999 127.0.0.1:6381", "moved"),
        ("-ASK 3999 127.0.0.1:6381", "moved"),
        ("-CLUSTERDOWN The cluster is down", "clusterdown"),
        ("-CROSSSLOT Keys in request don't hash to the same slot", "crossslot"),
        ("-ERR something nobody has thought of", "script"),
        ("+PONG", "reply"),
    ] {
        member.store_is(true).await;
        relay.set(Fault::Say(format!("{reply}\r\n").into()));
        goes_on(&member, &site, kind).await;
        relay.set(Fault::None);
    }
    member.store_is(true).await;
    nothing_panicked(&member).await;
}

#[tokio::test]
async fn a_full_read_only_or_busy_server_counts_as_away() {
    let (redis, site) = (Redis::start(), Site::start());
    let member = Member::start(&rules("rate: 1000/s, burst: 1000", &redis.url(), "local")).await;
    member.store_is(true).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    goes_on(&member, &site, "oom").await;
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    member.store_is(true).await;
    redis.command(&["REPLICAOF", "127.0.0.1", "1"]);
    goes_on(&member, &site, "readonly").await;
    redis.command(&["REPLICAOF", "NO", "ONE"]);
    member.store_is(true).await;
    redis.command(&["CONFIG", "SET", "busy-reply-threshold", "100"]);
    let endless = redis.start_command(&["EVAL", "while true do end", "0"]);
    goes_on(&member, &site, "busy").await;
    redis.command(&["SCRIPT", "KILL"]);
    drop(endless);
    member.store_is(true).await;
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    nothing_panicked(&member).await;
}

#[tokio::test]
async fn a_foreign_key_under_our_name_is_reported_and_not_retried_in_a_loop() {
    let (redis, site) = (Redis::start(), Site::start());
    redis.command(&["SET", "tidegate:{default}:b:", "somebody else's"]);
    let member = Member::start(&rules("rate: 1000/s, burst: 1000", &redis.url(), "local")).await;
    member.store_is(true).await;
    for _ in 0..50 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    let refused = errors(&member, "wrongtype").await;
    assert!((1.0..=150.0).contains(&refused), "{refused} calls for 50 requests");
    let log = member.log();
    let lines = log.lines().filter(|line| line.contains("the store refused a call")).count();
    assert!((1..=20).contains(&lines), "{lines} lines in:\n{log}");
    assert_eq!(redis.command(&["GET", "tidegate:{default}:b:"]), "$15\r\nsomebody else's\r\n");
    redis.command(&["DEL", "tidegate:{default}:b:"]);
    let before = errors(&member, "wrongtype").await;
    for _ in 0..10 {
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    }
    assert!((errors(&member, "wrongtype").await - before).abs() < 1e-9);
}

#[tokio::test]
async fn a_changed_password_is_reported_without_showing_it() {
    let (redis, site) = (Redis::start_with(&["--requirepass", "s3cret-1"]), Site::start());
    let url = format!("redis://:s3cret-1@{}", redis.address());
    let member = Member::start(&rules("rate: 1000/s, burst: 1000", &url, "local")).await;
    member.store_is(true).await;
    let reply = redis.command_as("s3cret-1", &["CONFIG", "SET", "requirepass", "s3cret-2"]);
    assert!(reply.ends_with("+OK\r\n"), "{reply}");
    redis.command_as("s3cret-2", &["CLIENT", "KILL", "TYPE", "normal"]);
    redis.command_as("s3cret-2", &["CLIENT", "KILL", "TYPE", "pubsub"]);
    member.store_is(false).await;
    let start = Instant::now();
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let knocked: f64 = member.metric("tidegate_store_errors_total", &[]).await;
    let knocks = KNOCKS * (1.0 + start.elapsed().as_secs_f64());
    assert!((1.0..knocks).contains(&knocked), "{knocked} failed calls");
    redis.command_as("s3cret-2", &["CONFIG", "SET", "requirepass", "s3cret-1"]);
    member.store_is(true).await;
    assert!(!member.log().contains("s3cret"), "a password is in the log:\n{}", member.log());
}
