//! The probe: exactly one in the whole fleet, and a lost one is replaced.

use std::time::Duration;

use integration_tests::{
    client::{Raw, get},
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};

use crate::{SOON, cools, spawn_get, three_blocks};

/// What `src/cli/app.rs` adds to the timeouts before a probe counts as lost.
const LEASE_SLACK: Duration = Duration::from_secs(5);

/// Sees that nothing comes for a while: the only wait here that is not for something.
async fn nothing_more_than(site: &Site, count: usize) {
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(site.count(), count, "{:?}", site.arrivals());
}

#[tokio::test]
async fn exactly_one_probe_goes_however_many_members_and_requests_wait() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1s, ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(3, &file).await;
    three_blocks(&fleet[0], &site).await;
    site.answer_everything_with(Some(Page::Held));
    let waiting: Vec<_> = (0..30).map(|n| spawn_get(&fleet[n % 3], site.url("/"))).collect();
    wait_until("the probe goes", SOON, async || site.count() > 3).await;
    nothing_more_than(&site, 4).await;
    site.release();
    for answer in waiting {
        assert_eq!(answer.await.expect("the client lives").status, 200);
    }
    assert_eq!(site.count(), 33);
    let mut probes = 0.0;
    for member in &fleet {
        probes += member.metric("tidegate_probes_total", &[]).await;
    }
    assert!((probes - 1.0).abs() < 1e-9, "the fleet counts {probes} probes");
}

#[tokio::test]
async fn one_probe_goes_for_many_hosts_that_share_a_cooldown() {
    let (redis, site) = (Redis::start(), Site::of_many_hosts());
    let rule = "per: host, rate: 100/s, cooldown: {per: all, for: 1s, ramp: 0s}";
    let member = Member::start(&RuleFile::one_rule(rule).redis(&redis)).await;
    three_blocks(&member, &site).await;
    site.answer_everything_with(Some(Page::Held));
    let waiting: Vec<_> = (1..=20).map(|host| spawn_get(&member, site.url_of(host, "/"))).collect();
    wait_until("the probe goes", SOON, async || site.count() > 3).await;
    nothing_more_than(&site, 4).await;
    site.release();
    for answer in waiting {
        assert_eq!(answer.await.expect("the client lives").status, 200);
    }
    assert_eq!(site.count(), 23);
    let probes = member.metric("tidegate_probes_total", &[]).await;
    assert!((probes - 1.0).abs() < 1e-9, "{probes} probes");
}

#[tokio::test]
async fn a_probe_whose_connection_breaks_is_followed_by_the_next() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1s, ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    three_blocks(&fleet[0], &site).await;
    site.on("/broken", Page::Reset);
    let broken = spawn_get(&fleet[1], site.url("/broken"));
    let waits = || async {
        cools(&fleet[1], SOON, true).await;
        fleet[1].metric("tidegate_held_requests", &[]).await > 0.0
    };
    wait_until("the first waits", SOON, async || waits().await).await;
    let good = spawn_get(&fleet[1], site.url("/good"));
    assert_eq!(broken.await.expect("the client lives").status, 502);
    assert_eq!(good.await.expect("the client lives").status, 200);
    let lost = fleet[1].metric("tidegate_probes_total", &[("result", "lost")]).await;
    assert!(lost >= 1.0, "the lost probe is counted");
    cools(&fleet[0], SOON, false).await;
}

#[tokio::test]
async fn a_probe_without_a_response_is_followed_by_the_next() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1s, ramp: 0s}")
        .with("timeouts: {response: 1s}")
        .redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    three_blocks(&fleet[0], &site).await;
    site.on("/silent", Page::Hang);
    let silent = spawn_get(&fleet[1], site.url("/silent"));
    wait_until("it is the probe", SOON, async || site.count() == 4).await;
    let good = spawn_get(&fleet[0], site.url("/good"));
    assert_eq!(silent.await.expect("the client lives").status, 504);
    assert_eq!(good.await.expect("the client lives").status, 200);
    let times = site.times();
    assert_eq!(times.len(), 5);
    assert!(times[4] - times[3] >= Duration::from_millis(900), "the next waits for the time-out");
    let lost = fleet[1].metric("tidegate_probes_total", &[("result", "lost")]).await;
    assert!((lost - 1.0).abs() < 1e-9, "{lost} lost probes");
    cools(&fleet[1], SOON, false).await;
}

#[tokio::test]
async fn another_probe_follows_if_the_client_of_the_first_disconnects() {
    let (redis, site) = (Redis::start(), Site::start());
    let file = RuleFile::one_rule("cooldown: {for: 1s, ramp: 0s}").redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    three_blocks(&fleet[0], &site).await;
    site.on("/leaves", Page::Hang);
    let mut leaver = Raw::connect(fleet[0].proxy()).await;
    let url = site.url("/leaves");
    leaver.send(format!("GET {url} HTTP/1.1\r\nHost: {}\r\n\r\n", site.address())).await;
    wait_until("it is the probe", SOON, async || site.count() == 4).await;
    let other = spawn_get(&fleet[1], site.url("/"));
    nothing_more_than(&site, 4).await;
    drop(leaver);
    assert_eq!(other.await.expect("the client lives").status, 200);
}

#[tokio::test]
async fn a_member_that_is_killed_while_it_probes_is_replaced_after_the_lease() {
    let (redis, site) = (Redis::start(), Site::start());
    let (connect, response) = (Duration::from_millis(200), Duration::from_secs(2));
    let file = RuleFile::one_rule("cooldown: {for: 1s, ramp: 0s}")
        .with("timeouts: {connect: 200ms, response: 2s}")
        .redis(&redis);
    let mut fleet = Member::fleet(2, &file).await;
    three_blocks(&fleet[0], &site).await;
    site.on("/killed", Page::Hang);
    let (proxy, url) = (fleet[0].proxy(), site.url("/killed"));
    tokio::spawn(async move { integration_tests::client::try_get(proxy, &url).await.is_ok() });
    wait_until("it is the probe", SOON, async || site.count() == 4).await;
    fleet[0].kill();
    assert_eq!(get(fleet[1].proxy(), &site.url("/")).await.status, 200);
    let times = site.times();
    assert_eq!(times.len(), 5);
    let lease = connect + response + LEASE_SLACK;
    let pause = times[4] - times[3];
    // The lease counts from the grant, a moment before the site saw the probe.
    let early = lease - Duration::from_millis(500);
    assert!(pause >= early && pause < lease + Duration::from_secs(3), "{pause:?} for {lease:?}");
}

#[tokio::test]
async fn a_reload_of_the_timeouts_changes_how_long_a_probe_may_be_out() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = RuleFile::one_rule("cooldown: {for: 1s, ramp: 0s}").redis(&redis);
    let member = Member::start(&rule).await;
    member.rewrite(&rule.with("timeouts: {connect: 1s, response: 20s}"));
    wait_until("it is reloaded", SOON, async || {
        member.metric("tidegate_config_reloads_total", &[("result", "ok")]).await > 0.0
    })
    .await;
    three_blocks(&member, &site).await;
    site.on("/silent", Page::Hang);
    let silent = spawn_get(&member, site.url("/silent"));
    wait_until("it is the probe", SOON, async || site.count() == 4).await;
    let moment = |field| -> u64 {
        let reply = redis.command(&["HGET", "tidegate:{default}:c:", field]);
        let number = reply.split("\r\n").nth(1).and_then(|line| line.parse().ok());
        number.unwrap_or_else(|| panic!("{field}: {reply}"))
    };
    let lease = Duration::from_micros(moment("lease") - moment("probe"));
    assert_eq!(lease, Duration::from_secs(1 + 20) + LEASE_SLACK);
    silent.abort();
}

#[tokio::test]
async fn a_probe_without_a_token_is_no_probe_in_flight() {
    let (redis, site) = (Redis::start(), Site::start());
    let rule = |quota: &str| {
        let keys = "max_wait: 20s, cooldown: {after: 3, for: 1s, ramp: 0s}";
        RuleFile::one_rule(&format!("quota: {quota}, {keys}")).redis(&redis)
    };
    let member = Member::start(&rule("3/h")).await;
    three_blocks(&member, &site).await;
    site.answer_everything_with(None);
    // It waits for the end of the cooldown, and then no token comes in time.
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (429, Some("limit")), "{}", answer.text());
    // The member restores what a store forgets: the scope is closed, and no probe is in flight.
    redis.command(&["DEL", "tidegate:{default}:c:", "tidegate:members"]);
    let field = |name: &str| redis.command(&["HGET", "tidegate:{default}:c:", name]);
    wait_until("the member reports the cooldown", SOON, async || field("till") != "$-1\r\n").await;
    assert_ne!(field("till"), "$1\r\n0\r\n", "it is closed");
    assert_eq!(field("probe"), "$1\r\n0\r\n", "no member holds the probe");
    member.rewrite(&rule("100/h"));
    wait_until("it goes once the quota is larger", SOON, async || {
        get(member.proxy(), &site.url("/")).await.status == 200
    })
    .await;
    assert_eq!(site.count(), 4);
}
