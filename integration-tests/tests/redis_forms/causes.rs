//! A store that cannot be reached: the log names the cause at once, the metric has the kind, and
//! limited requests wait.

use super::*;

/// A member that starts with this store reports `cause` at once, counts `kind`, and sends nothing.
async fn says(store: &str, cause: &str, kind: &str) {
    let site = Site::start();
    let file = RuleFile::one_rule("rate: 20/s, burst: 2, max_wait: 1s").store(store);
    let member = Member::start(&file).await;
    let said = format!("cause={cause}");
    wait_until(&format!("{store}: {said}"), SOON, async || member.log().contains(&said)).await;
    let log = member.log();
    let line = log.lines().find(|line| line.contains(&said)).expect("it was just there");
    assert!(line.contains("has not been reached since the start"), "{line}");
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (503, Some("store")), "{store}");
    assert_eq!(site.count(), 0, "{store}");
    let counted = member.metric("tidegate_store_errors_total", &[("kind", kind)]).await;
    assert!(counted > 0.0, "{store}: no error of the kind {kind}");
    let lines = member.log().lines().filter(|line| line.contains("not been reached")).count();
    assert!(lines <= 4, "{lines} lines: each cause once\n{}", member.log());
    assert!(!member.log().contains("s3cret"), "the password is in the log:\n{}", member.log());
}

#[tokio::test]
async fn nobody_listens() {
    says(&format!("\"redis://{}\"", free_address()), "unreachable", "unreachable").await;
}

#[tokio::test]
async fn the_password_is_wrong() {
    let redis = Redis::start_with(&["--requirepass", "another"]);
    says(&format!("\"redis://:s3cret@{}\"", redis.address()), "refused", "auth").await;
}

#[tokio::test]
async fn the_user_has_no_permission() {
    let user = ["--user", "crawler", "on", ">s3cret", "~tidegate:*", "&tidegate:*", "+ping"];
    let redis = Redis::start_with(&user);
    says(&format!("\"redis://crawler:s3cret@{}\"", redis.address()), "refused", "noperm").await;
}

#[tokio::test]
async fn it_hangs() {
    let redis = Redis::start();
    redis.freeze();
    says(&format!("\"{}\"", redis.url()), "timed_out", "timeout").await;
}

#[tokio::test]
async fn tls_is_spoken_to_a_plain_port_and_the_other_way_round() {
    let plain = Redis::start();
    says(&format!("\"rediss://{}\"", plain.address()), "invalid_reply", "tls").await;
    let root = Root::new();
    let ((cert, key), tls) = (root.files(), free_address());
    let port = tls.port().to_string();
    let options = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key];
    let ca = root.file().display().to_string();
    let options: Vec<_> = options
        .into_iter()
        .chain(["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"])
        .collect();
    let _server = Redis::start_with(&options);
    says(&format!("\"rediss://{tls}\""), "invalid_reply", "tls").await;
}
