//! A verdict inside an intercepted connection of one member counts for the whole fleet.

use std::{path::Path, time::Duration};

use integration_tests::{
    member::{Member, RuleFile},
    redis::Redis,
    site::Page,
    tools::run_through,
    wait::wait_until,
};

use crate::{SOON, secure_site};

/// Sends a request through this member, trusting only its CA. Returns the status and the verdict.
async fn ask(member: &Member, url: &str) -> String {
    let roots = member.ca_file();
    let roots = roots.to_str().expect("a plain path");
    let told = "%{http_code} %header{tidegate-verdict}";
    let arguments = [
        "--silent",
        "--show-error",
        "--cacert",
        roots,
        "--output",
        "/dev/null",
        "--write-out",
        told,
        url,
    ];
    let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_wall_inside_an_intercepted_connection_stops_the_other_member_too() {
    let (site, root) = secure_site();
    let redis = Redis::start();
    let file = RuleFile::one_rule("intercept: true, cooldown: {after: 3, for: 3s, ramp: 0s}")
        .with(&format!("upstream_ca: [\"{}\"]", root.file().display()))
        .redis(&redis);
    let fleet = Member::fleet(2, &file).await;
    for member in &fleet {
        assert_eq!(ask(member, &site.url("/")).await, "200 ok");
    }
    site.answer_everything_with(Some(Page::Captcha));
    for _ in 0..3 {
        assert_eq!(ask(&fleet[0], &site.url("/")).await, "403 captcha");
    }
    site.answer_everything_with(None);
    wait_until("the other member knows of it", SOON, async || {
        fleet[1].metric("tidegate_cooldown_active", &[]).await > 0.0
    })
    .await;
    assert_eq!(ask(&fleet[1], &site.url("/")).await, "200 ok");
    let times = site.times();
    assert_eq!(times.len(), 6, "two pages, the walls, and one page behind them");
    let pause = times[5] - times[4];
    assert!(pause >= Duration::from_secs(3), "the other member waited {pause:?} of 3 s");
}
