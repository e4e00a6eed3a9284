//! Each of the seven kinds of block is counted under its name; five of them trip the cooldown, two
//! do not.

use std::time::Duration;

use integration_tests::{
    client::{ProxyClient, get},
    member::{Member, RuleFile},
    site::{Page, Site},
    wait::wait_until,
};

const BLOCKS: [(&str, Page); 5] = [
    ("403_forbidden", Page::Forbidden),
    ("429_rate_limited", Page::TooManyRequests(None)),
    ("captcha", Page::Captcha),
    ("cloudflare_challenge", Page::CloudflareChallenge),
    ("blank_page", Page::Blank),
];
const FAILURES: [(&str, Page, u16); 2] =
    [("connection_error", Page::Reset, 502), ("timeout", Page::Hang, 504)];
const SOON: Duration = Duration::from_secs(5);

/// Waits until the member has counted this many verdicts of this name.
async fn counted(member: &Member, verdict: &str, n: u32) {
    let labels = [("rule", "default"), ("verdict", verdict)];
    wait_until(&format!("{verdict} is counted"), SOON, async || {
        (member.metric("tidegate_requests_total", &labels).await - f64::from(n)).abs() < 1e-9
    })
    .await;
}

#[tokio::test]
async fn each_verdict_is_reported_and_counted_under_its_name() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 100, respect_retry_after: false}")
        .with("timeouts: {response: 300ms}");
    let member = Member::start(&file).await;
    for (verdict, page) in BLOCKS {
        site.on("/wall", page.clone());
        let answer = get(member.proxy(), &site.url("/wall")).await;
        assert_eq!(answer.status, page.status(), "the site's own answer reaches the client");
        assert_eq!(answer.verdict(), Some(verdict));
        counted(&member, verdict, 1).await;
        let labels = [("rule", "default"), ("type", verdict)];
        let blocks = member.metric("tidegate_blocks_total", &labels).await;
        assert!((blocks - 1.0).abs() < 1e-9, "{verdict}: counted as {blocks} blocks");
    }
    for (verdict, page, status) in FAILURES {
        site.on("/fault", page);
        assert_eq!(get(member.proxy(), &site.url("/fault")).await.status, status);
        counted(&member, verdict, 1).await;
    }
    let ok = get(member.proxy(), &site.url("/")).await;
    assert_eq!((ok.verdict(), ok.header("tidegate-rule")), (Some("ok"), Some("default")));
    counted(&member, "ok", 1).await;
}

#[tokio::test]
async fn three_of_each_of_the_five_blocks_trip_the_cooldown() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m}");
    for (verdict, page) in BLOCKS {
        let member = Member::start(&file).await;
        site.answer_everything_with(Some(page));
        let mut client = ProxyClient::connect(member.proxy()).await;
        for n in 1..=3 {
            // Distinct addresses: the same blank page again would be no news.
            client.get(&site.url(&format!("/{verdict}/{n}"))).await;
        }
        let labels = [("rule", "default"), ("type", verdict)];
        wait_until(&format!("{verdict} trips"), SOON, async || {
            let metrics = member.metrics().await;
            metrics.sum("tidegate_cooldowns_total", &labels) > 0.0
                && metrics.sum("tidegate_cooldown_active", &[("rule", "default")]) > 0.0
        })
        .await;
        let remaining = member.metric("tidegate_cooldown_remaining_seconds", &[]).await;
        assert!((50.0..=60.0).contains(&remaining), "{verdict}: {remaining} s remain of a minute");
    }
}

#[tokio::test]
async fn connection_errors_and_timeouts_do_not_trip_it() {
    let site = Site::start();
    let file =
        RuleFile::one_rule("cooldown: {after: 3, for: 1m}").with("timeouts: {response: 200ms}");
    for (verdict, page, status) in FAILURES {
        let member = Member::start(&file).await;
        site.on("/fault", page);
        let mut client = ProxyClient::connect(member.proxy()).await;
        for _ in 0..4 {
            assert_eq!(client.get(&site.url("/fault")).await.status, status);
        }
        counted(&member, verdict, 4).await;
        let answer = client.get(&site.url("/")).await;
        assert_eq!(answer.status, 200, "{verdict}: the next request goes");
        let trips = member.metric("tidegate_cooldowns_total", &[]).await;
        assert!(trips.abs() < 1e-9, "{verdict} tripped");
    }
}

#[tokio::test]
async fn a_block_with_a_retry_after_trips_at_once_and_for_that_long() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m, probe: false, ramp: 0s}");
    let member = Member::start(&file).await;
    site.on("/fast", Page::TooManyRequests(Some("2".to_owned())));
    assert_eq!(get(member.proxy(), &site.url("/fast")).await.status, 429);
    assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200);
    let times = site.times();
    let pause = times[1] - times[0];
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(4)).contains(&pause),
        "{pause:?} instead of the 2 s that the site asked for"
    );
}

#[tokio::test]
async fn images_and_other_non_pages_neither_block_nor_reset() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m, ratio: off}");
    let member = Member::start(&file).await;
    site.on("/wall", Page::Forbidden);
    site.on("/logo.png", Page::Image);
    let mut client = ProxyClient::connect(member.proxy()).await;
    for path in ["/wall", "/wall", "/logo.png", "/wall"] {
        client.get(&site.url(path)).await;
    }
    wait_until("the image did not reset the streak", SOON, async || {
        member.metric("tidegate_cooldown_active", &[]).await > 0.0
    })
    .await;
}

#[tokio::test]
async fn a_missing_page_and_a_broken_site_are_not_blocks() {
    let site = Site::start();
    let member = Member::start(&RuleFile::one_rule("cooldown: {after: 1, for: 1m}")).await;
    for page in [Page::NotFound, Page::Status(500), Page::Status(503)] {
        let status = page.status();
        site.answer_everything_with(Some(page));
        let answer = get(member.proxy(), &site.url("/")).await;
        assert_eq!((answer.status, answer.verdict()), (status, Some("ok")));
    }
    let trips = member.metric("tidegate_cooldowns_total", &[]).await;
    assert!(trips.abs() < 1e-9, "no cooldown");
}

/// A page that comes near to a check for humans without being one: it has menus.
const SUSPECT: &str = "<title>Shop</title><nav>Menu</nav><nav>More</nav><article><h1>Verify you are human</h1></article>";

#[tokio::test]
async fn a_page_like_a_wall_is_reported_and_kept_and_a_block_once_every_page_is_like_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("suspects");
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 100}")
        .with(&format!("inspect: {{keep: {}, most: 5}}", kept.display()));
    let member = Member::start(&file).await;
    let ordinary =
        format!("<title>Shop</title>{}", "<p>Shoes of many kinds and sizes.</p>".repeat(60));
    let mut client = ProxyClient::connect(member.proxy()).await;
    for n in 0..6 {
        let path = format!("/shoes/{n}");
        site.on(&path, Page::Html(ordinary.clone()));
        assert_eq!(client.get(&site.url(&path)).await.verdict(), Some("ok"));
    }
    let mut verdicts = Vec::new();
    for n in 0..5 {
        let path = format!("/other/{n}");
        site.on(&path, Page::Html(SUSPECT.to_owned()));
        let answer = client.get(&site.url(&path)).await;
        verdicts.push(answer.verdict().expect("a verdict").to_owned());
    }
    assert_eq!(verdicts, ["ok", "ok", "ok", "403_forbidden", "403_forbidden"]);
    let suspects = member.metric("tidegate_suspects_total", &[("rule", "default")]).await;
    assert!((suspects - 5.0).abs() < 1e-9, "{suspects} suspects");
    wait_until("one suspect is kept", SOON, async || {
        std::fs::read_dir(&kept).is_ok_and(|files| files.count() == 1)
    })
    .await;
}

/// Trips of the default rule so far.
async fn trips(member: &Member) -> f64 {
    member.metrics().await.sum("tidegate_cooldowns_total", &[("rule", "default")])
}

#[tokio::test]
async fn a_503_for_every_page_is_a_wall_and_a_503_among_pages_is_not() {
    let site = Site::start();
    let file = RuleFile::one_rule("cooldown: {after: 3, for: 1m}");
    let member = Member::start(&file).await;
    let mut client = ProxyClient::connect(member.proxy()).await;
    site.on("/broken*", Page::Status(503));
    for n in 0..12 {
        client.get(&site.url(&format!("/broken/{n}"))).await;
        // One page in three is good.
        if n % 2 == 1 {
            client.get(&site.url(&format!("/page/{n}"))).await;
        }
    }
    assert!(trips(&member).await < 0.5, "pages that are broken");
    site.answer_everything_with(Some(Page::Status(503)));
    for n in 0..5 {
        assert_eq!(client.get(&site.url(&format!("/page/{n}"))).await.status, 503);
    }
    wait_until("five different pages in a row trip", SOON, async || {
        trips(&member).await > 0.5
            && member.metric("tidegate_cooldown_active", &[("rule", "default")]).await > 0.0
    })
    .await;
    assert_eq!(site.count(), 23, "nothing was sent since");
}

#[tokio::test]
async fn a_probe_that_gets_a_503_starts_the_next_cooldown() {
    let site = Site::start();
    let file =
        RuleFile::one_rule("cooldown: {after: 3, for: 100ms-100ms, grow: 2, max: 10s, ramp: 0s}");
    let member = Member::start(&file).await;
    let mut client = ProxyClient::connect(member.proxy()).await;
    client.get(&site.url("/")).await;
    site.answer_everything_with(Some(Page::Status(503)));
    // The sixth request is the probe.
    for n in 0..6 {
        client.get(&site.url(&format!("/page/{n}"))).await;
    }
    wait_until("the probe fails", SOON, async || {
        let failed = [("rule", "default"), ("result", "block")];
        member.metrics().await.sum("tidegate_probes_total", &failed) > 0.5
    })
    .await;
    site.answer_everything_with(None);
    assert_eq!(client.get(&site.url("/")).await.status, 200);
    wait_until("a good page opens the scope", SOON, async || {
        member.metric("tidegate_cooldown_active", &[("rule", "default")]).await < 0.5
    })
    .await;
}
