//! A store that is misconfigured is reported at once, by its cause, and the member is not ready.

use std::time::Duration;

use integration_tests::{
    client::{get, get_direct},
    member::{Member, RuleFile},
    ports::free_address,
    redis::Redis,
    site::Site,
    wait::wait_until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);

async fn json(member: &Member, path: &str) -> Value {
    serde_json::from_str(&get_direct(member.admin(), path).await.text()).expect("it is JSON")
}

#[tokio::test]
async fn a_wrong_address_password_scheme_or_permission_is_named_and_the_member_is_not_ready() {
    let redis = Redis::start_with(&["--requirepass", "s3cret"]);
    let user = ["ACL", "SETUSER", "limited", "on", ">pass", "~*", "&*", "+@all", "-evalsha"];
    assert!(redis.command_as("s3cret", &user).ends_with("+OK\r\n"));
    let (there, nowhere) = (redis.address(), free_address());
    for (url, kind, advice) in [
        (format!("redis://{nowhere}"), "unreachable", "check the address"),
        (format!("redis://:wr0ng@{there}"), "auth", "check the user and the password"),
        (format!("redis://{there}"), "auth", "check the user and the password"),
        (format!("rediss://:s3cret@{there}"), "tls", "whether the server speaks TLS"),
        (format!("redis://limited:pass@{there}"), "noperm", "check the permissions"),
    ] {
        let member = Member::start(&RuleFile::one_rule("rate: 5/s").store(&url)).await;
        let line = || {
            let log = member.log();
            log.lines()
                .find(|line| line.contains("the store has not been reached"))
                .map(str::to_owned)
        };
        wait_until(&format!("{url} is in the log"), SOON, async || line().is_some()).await;
        let line = line().expect("it was there");
        let server = if kind == "unreachable" { nowhere } else { there };
        for part in [kind, advice, &server.to_string(), "ERROR"] {
            assert!(line.contains(part), "`{part}` is missing for {url}: {line}");
        }
        let ready = get_direct(member.admin(), "/readyz").await;
        assert_eq!(ready.status, 503, "{url}: {}", ready.text());
        let store = &json(&member, "/api/v1/status").await["store"];
        assert_eq!((&store["reached"], &store["up"]), (&false.into(), &false.into()), "{store}");
        assert_eq!(store["trouble"]["kind"], kind, "{store}");
        let said = store["trouble"]["meanwhile"].as_str().unwrap_or_default();
        assert!(said.contains("held until the store was reached"), "{said}");
        let counted = member.metric("tidegate_store_errors_total", &[("kind", kind)]).await;
        assert!(counted > 0.0, "{kind} is counted");
        let log = member.log();
        assert!(!log.contains("s3cret") && !log.contains("wr0ng"), "a password is in the log");
    }
}

#[tokio::test]
async fn a_member_is_ready_once_its_store_was_reached_and_stays_so_while_the_store_is_away() {
    let mut redis = Redis::start();
    redis.kill();
    let file = RuleFile::one_rule("rate: 8/s").redis(&redis);
    let member = Member::start(&file).await;
    let ready = async || get_direct(member.admin(), "/readyz").await.status;
    let lines = |what: &str| member.log().lines().filter(|line| line.contains(what)).count();
    let never = "the store has not been reached";
    wait_until("the outage is reported", SOON, async || lines(never) == 1).await;
    assert_eq!(ready().await, 503);
    redis.restart();
    wait_until("it is ready", SOON, async || ready().await == 200).await;
    redis.kill();
    member.store_is(false).await;
    assert_eq!(ready().await, 200, "local mode serves");
    let away = "the store is away";
    wait_until("the second outage is reported", SOON, async || lines(away) == 1).await;
}

#[tokio::test]
async fn a_member_sends_nothing_that_is_limited_beside_members_with_another_schema() {
    let (site, redis) = (Site::start(), Redis::start());
    let other = |command: &str| {
        redis.command(&["EVAL", command, "1", "tidegate:members"]);
    };
    let take_over = "redis.call('DEL', KEYS[1]) \
                     redis.call('ZADD', KEYS[1], 9e15, 'another/2')";
    other(take_over);
    let store = format!("{{url: \"{}\", timeout: 2s, local_share: 50%}}", redis.url());
    let file = RuleFile::one_rule("rate: 50/s, max_wait: 0s").store(&store);
    let member = Member::start(&file).await;
    let ready = async || get_direct(member.admin(), "/readyz").await.status;
    let status = async || get(member.proxy(), &site.url("/")).await.status;
    for start in ["it starts", "they take over"] {
        wait_until("it holds", SOON, async || ready().await == 503 && status().await != 200).await;
        let trouble = &json(&member, "/api/v1/status").await["store"]["trouble"];
        assert_eq!(trouble["kind"], "schema", "{start}: {trouble}");
        let reason = trouble["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("1 members of a version with schema 2"), "{start}: {reason}");
        let sent = site.count();
        assert!(status().await != 200 && site.count() == sent, "{start}");
        redis.command(&["DEL", "tidegate:members"]);
        wait_until("it sends", SOON, async || ready().await == 200 && status().await == 200).await;
        other(take_over);
    }
}
