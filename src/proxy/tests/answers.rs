//! Responses of hostile or broken sites.

use super::bench::{Bench, Site, settings};

async fn error_of(answer: &'static str) -> (u16, String) {
    let site = Site::scripted(move |_, _| (answer.to_owned(), true)).await;
    let bench = Bench::start().await;
    let answer = bench.get(&site.url("/")).await;
    let error = answer.field("proxy-status").unwrap_or_default().to_owned();
    (answer.status(), error)
}

#[tokio::test]
async fn a_response_that_is_not_http_is_a_bad_gateway() {
    for answer in ["garbage\r\n\r\n", "<html>HTTP/0.9</html>", "HTTP/1.1 2000 OK\r\n\r\n"] {
        let (status, error) = error_of(answer).await;
        assert_eq!(status, 502, "{answer}");
        assert_eq!(error, "tidegate; error=http_protocol_error", "{answer}");
    }
}

#[tokio::test]
async fn two_different_lengths_are_a_bad_gateway() {
    for fields in
        ["content-length: 2\r\ncontent-length: 3", "content-length: 2, 3", "content-length: +2"]
    {
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhi!").leak();
        assert_eq!(error_of(answer).await.0, 502, "{fields}");
    }
}

#[tokio::test]
async fn a_length_beside_a_coding_is_dropped() {
    let site = Site::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    )
    .await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client
        .send(&format!("GET {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", site.url("/")))
        .await;
    let text = client.rest().await;
    assert!(!text.contains("content-length: 99"), "{text}");
    assert!(text.contains("\r\n\r\nhi") || text.contains("\r\n2\r\nhi\r\n0\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn an_unrequested_transfer_coding_is_refused() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n";
    let (status, error) = error_of(answer).await;
    assert_eq!((status, &*error), (502, "tidegate; error=http_response_transfer_coding"));
}

#[tokio::test]
async fn an_unrequested_protocol_switch_is_refused() {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    let (status, error) = error_of(answer).await;
    assert_eq!((status, &*error), (502, "tidegate; error=http_upgrade_failed"));
}

#[tokio::test]
async fn a_head_without_end_is_cut() {
    let endless: &'static str =
        format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(1 << 20)).leak();
    let (status, error) = error_of(endless).await;
    assert_eq!((status, &*error), (502, "tidegate; error=http_response_header_section_size"));
}

#[tokio::test]
async fn interim_answers_come_before_their_answer() {
    let site = Site::scripted(|_, _| {
        let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(20);
        (interim + "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", false)
    })
    .await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"))).await;
    for _ in 0..20 {
        assert_eq!(client.head().await.status(), 102);
    }
    assert_eq!(client.answer().await.body(), "hi");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_never_complete() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\nx\r\n",
    ] {
        let site = Site::scripted(move |_, _| (answer.to_owned(), true)).await;
        let bench = Bench::start().await;
        let mut client = bench.connect().await;
        client.send(&format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"))).await;
        let text = client.rest().await;
        let complete = text.contains("content-length: 2\r\n") || text.ends_with("0\r\n\r\n");
        assert!(!complete, "{answer} became {text}");
    }
}

#[tokio::test]
async fn a_body_up_to_the_end_of_the_connection_is_relayed() {
    let site = Site::scripted(|_, _| ("HTTP/1.1 200 OK\r\n\r\nto the end".to_owned(), true)).await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client
        .send(&format!("GET {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", site.url("/")))
        .await;
    assert!(client.rest().await.contains("to the end"));
}

#[tokio::test]
async fn bytes_beyond_the_length_do_not_answer_the_next_request() {
    let site = Site::scripted(|number, _| {
        let smuggled = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
        let extra = if number == 0 { smuggled } else { "" };
        (format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi{extra}"), false)
    })
    .await;
    let bench = Bench::start().await;
    for _ in 0..3 {
        assert_eq!(bench.get(&site.url("/")).await.body(), "hi");
    }
}

#[tokio::test]
async fn a_silent_site_is_a_timeout() {
    let site = Site::scripted(|_, _| (String::new(), false)).await;
    let mut settings = settings();
    settings.timeouts.response = std::time::Duration::from_millis(50);
    let bench = Bench::with(settings, vec![super::bench::rule()]).await;
    let answer = bench.get(&site.url("/")).await;
    assert_eq!(answer.status(), 504);
    assert_eq!(answer.field("proxy-status"), Some("tidegate; error=http_response_timeout"));
    assert_eq!(answer.field("tidegate-refused"), Some("timeout"));
}

#[tokio::test]
async fn a_site_that_falls_silent_within_its_body_is_cut_off() {
    let site = Site::answering("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await;
    let mut settings = settings();
    settings.timeouts.idle = std::time::Duration::from_millis(50);
    settings.inspect.delay = std::time::Duration::from_millis(10);
    let bench = Bench::with(settings, vec![super::bench::rule()]).await;
    let mut client = bench.connect().await;
    client.send(&format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url("/"))).await;
    assert!(client.rest().await.ends_with("\r\n\r\nhi"), "what came is relayed, then the end");
}

#[tokio::test]
async fn a_refused_connection_is_a_bad_gateway() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let bench = Bench::start().await;
    let answer = bench.get(&format!("http://{addr}/")).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.field("proxy-status"), Some("tidegate; error=connection_refused"));
    let problem: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
    assert_eq!((&problem["reason"], &problem["rule"]), (&"connect".into(), &"default".into()));
    assert_eq!(bench.metric(r#"tidegate_refused_total{rule="default",reason="connect"}"#), 1.0);
}
