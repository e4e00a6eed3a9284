//! Requests to sites and their responses.

use super::bench::{Bench, Site, settings, until};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi";

fn get(site: &Site, fields: &str) -> String {
    format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{fields}\r\n", site.addr)
}

#[tokio::test]
async fn hop_by_hop_fields_do_not_reach_the_site() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let fields = "User-Agent: x\r\nProxy-Connection: keep-alive\r\nConnection: close, X-Own\r\n\
                  X-Own: 1\r\nProxy-Authorization: Basic Zm9vOmJhcg==\r\nTE: trailers\r\n\
                  Keep-Alive: timeout=5\r\nTidegate-Rule: x\r\nPrefer: wait=3, return=minimal\r\n\
                  Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nAccept: */*\r\n";
    let answer = bench.ask(&get(&site, fields)).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.field("connection"), Some("close"));
    let expected = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nUser-Agent: x\r\nPrefer: return=minimal\r\nAccept: */*\r\n\
         Via: 1.1 {}\r\n\r\n",
        site.addr, bench.cx.pseudonym
    );
    assert_eq!(site.request(0).await, expected, "order and letter case are the client's");
}

#[tokio::test]
async fn a_connection_field_cannot_take_a_message_apart() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let fields = "Connection: Connection, Host, Content-Length, Authorization, ,\"\r\n\
                  Authorization: Bearer t\r\nContent-Length: 3\r\n";
    let request = get(&site, fields).replace("GET", "POST") + "abc";
    assert_eq!(bench.ask(&request).await.status(), 200);
    let seen = site.request(0).await;
    for part in ["Host: ", "Authorization: Bearer t\r\n", "Content-Length: 3\r\n", "\r\n\r\nabc"] {
        assert!(seen.contains(part), "{part} is missing in {seen}");
    }
}

#[tokio::test]
async fn the_target_beats_the_host_field() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let request = get(&site, "").replace("\r\nHost: ", "\r\nHost: other.example, ");
    let answer = bench.ask(&request.replace(", 127", "\r\nX: 127")).await;
    assert_eq!(answer.status(), 200);
    assert!(site.request(0).await.contains(&format!("Host: {}\r\n", site.addr)));
}

#[tokio::test]
async fn response_fields_pass_except_hop_by_hop_ones() {
    let site = Site::answering(
        "HTTP/1.1 200 Fine\r\nSet-Cookie: a=1\r\nX-B: 2\r\nSet-Cookie: c=3\r\nETag: \"x\"\r\n\
         Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nTidegate-Verdict: captcha\r\n\
         Tidegate-Next: 3600\r\nTidegate-Refused: limit\r\nContent-Length: 2\r\nX-High: \u{e9}\r\n\r\nhi",
    )
    .await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&get(&site, "Connection: close\r\n")).await;
    let text = client.rest().await;
    assert!(
        text.starts_with("HTTP/1.1 200 Fine\r\nset-cookie: a=1\r\nset-cookie: c=3\r\nx-b: 2"),
        "{text}"
    );
    for part in ["etag: \"x\"", "x-high: \u{e9}", "tidegate-verdict: ok", "tidegate-rule: default"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    for part in ["x-hop", "keep-alive", "captcha", "refused", "forwarded", "3600"] {
        assert!(!text.to_ascii_lowercase().contains(part), "{part} in {text}");
    }
    assert!(text.contains(&format!("via: 1.1 {}\r\n", bench.cx.pseudonym)), "{text}");
    assert!(text.contains("server-timing: hold;dur=0.0, upstream;dur="), "{text}");
}

#[tokio::test]
async fn nothing_is_annotated_where_the_settings_say_so() {
    let site = Site::answering(OK).await;
    let mut settings = settings();
    settings.annotate = false;
    let bench = Bench::with(settings, vec![super::bench::rule()]).await;
    let answer = bench.get(&site.url("/")).await;
    assert!(!answer.head.to_ascii_lowercase().contains("tidegate-verdict"), "{}", answer.head);
    assert!(!answer.head.to_ascii_lowercase().contains("server-timing"), "{}", answer.head);
}

#[tokio::test]
async fn a_request_that_comes_back_is_a_loop() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let via = format!("Via: 1.0 fred, 1.1 {} (x)\r\n", bench.cx.pseudonym);
    let answer = bench.ask(&get(&site, &via)).await;
    assert_eq!(answer.status(), 508);
    assert_eq!(answer.field("proxy-status"), Some("tidegate; error=proxy_loop_detected"));
    assert_eq!(answer.field("tidegate-refused"), Some("loop"));
    let other = bench.ask(&get(&site, "Via: 1.1 tidegate-00000000\r\n")).await;
    assert_eq!(other.status(), 200, "another member is no loop");
    assert_eq!(site.count(), 1);
}

#[tokio::test]
async fn an_old_client_gets_no_chunks_and_the_site_a_new_request() {
    let site = Site::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    )
    .await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&get(&site, "").replace("HTTP/1.1", "HTTP/1.0")).await;
    let text = client.rest().await;
    assert!(text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("\r\n\r\nhi"), "{text}");
    assert!(!text.contains("transfer-encoding"), "{text}");
    assert!(site.request(0).await.starts_with("GET / HTTP/1.1\r\n"));
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_in_step() {
    let site = Site::scripted(|_, request| {
        let status = if request.starts_with("HEAD") {
            "200 OK"
        } else if request.starts_with("GET http") || request.contains("/204") {
            "204 No Content"
        } else {
            "304 Not Modified"
        };
        (format!("HTTP/1.1 {status}\r\ncontent-length: 7\r\netag: \"e\"\r\n\r\n"), false)
    })
    .await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    for (line, status) in [("HEAD /", 200), ("GET /204", 204), ("GET /304", 304), ("HEAD /", 200)] {
        let (method, path) = line.split_once(' ').unwrap();
        client.send(&format!("{method} {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url(path))).await;
        let answer = client.head().await;
        assert_eq!((answer.status(), answer.field("etag")), (status, Some("\"e\"")));
    }
    assert_eq!(
        site.connections.load(std::sync::atomic::Ordering::SeqCst),
        1,
        "all on one connection"
    );
}

#[tokio::test]
async fn a_head_answer_gains_no_length() {
    let site = Site::answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&get(&site, "").replace("GET", "HEAD")).await;
    let answer = client.head().await;
    assert_eq!((answer.status(), answer.field("content-length")), (200, None));
}

#[tokio::test]
async fn header_names_keep_their_case_on_a_reused_connection() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    let fields = [
        "User-Agent: title case\r\n",
        "user-agent: lower case\r\nX-API-Key: 1\r\n",
        "User-Agent: and back\r\nDNT: 1\r\n",
        "User-Agent: title case\r\nX-Own: 1\r\n",
        "user-Agent: neither\r\nuser-agent: nor\r\n",
    ];
    let asked: Vec<String> = fields.iter().map(|fields| get(&site, fields)).collect();
    for one in &asked {
        client.send(one).await;
        assert_eq!(client.answer().await.status(), 200);
    }
    let mut other = bench.connect().await;
    other.send(&asked.concat()).await;
    for _ in &asked {
        assert_eq!(other.answer().await.status(), 200);
    }
    // After a body, and in pieces.
    let mut third = bench.connect().await;
    let post = get(&site, "Content-Length: 4\r\n").replace("GET", "POST") + "body";
    let (first, rest) = asked[1].split_at(asked[1].len() - 9);
    third.send(&(post + first)).await;
    assert_eq!(third.answer().await.status(), 200);
    third.send(rest).await;
    assert_eq!(third.answer().await.status(), 200);
    for (number, fields) in fields.iter().chain(&fields).enumerate() {
        assert!(site.request(number).await.contains(fields), "{number}");
    }
    assert!(site.request(11).await.contains(fields[1]));
}

#[tokio::test]
async fn names_in_another_case_wait_until_a_long_answer_is_out() {
    const LONG: usize = 8 << 20;
    let body = "x".repeat(LONG);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {LONG}\r\n\r\n{body}");
    let site = Site::scripted(move |_, _| (answer.clone(), false)).await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&(get(&site, "Own: 1\r\n") + &get(&site, "own: 2\r\n"))).await;
    for _ in 0..2 {
        assert_eq!(client.answer().await.body().len(), LONG);
    }
    assert!(site.request(1).await.contains("\r\nown: 2\r\n"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let site = Site::scripted(|_, request| {
        let path = request.split(' ').nth(1).unwrap().to_owned();
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len()), false)
    })
    .await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    let one = |path| format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", site.url(path));
    client.send(&(one("/1") + &one("/2") + &one("/3"))).await;
    for path in ["/1", "/2", "/3"] {
        assert_eq!(client.answer().await.body(), path);
    }
}

#[tokio::test]
async fn options_for_a_whole_site_is_an_asterisk_and_max_forwards_counts_down() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let options = |fields| get(&site, fields).replace("GET", "OPTIONS");
    assert_eq!(bench.ask(&options("Max-Forwards: 2\r\n")).await.status(), 200);
    assert!(site.request(0).await.contains("Max-Forwards: 1\r\n"));
    let own = bench.ask(&options("Max-Forwards: 0\r\n")).await;
    assert!(own.field("allow").is_some(), "{}", own.head);
    assert_eq!(site.count(), 1, "the second was for the proxy");
    let trace = bench.ask(&get(&site, "Cookie: secret\r\n").replace("GET", "TRACE")).await;
    assert_eq!(trace.status(), 405);
    assert!(!trace.body().contains("secret"));
    let unknown = bench.ask(&get(&site, "").replace("GET", "FROB")).await;
    assert_eq!(unknown.status(), 200);
    assert!(site.request(1).await.starts_with("FROB / "));
}

#[tokio::test]
async fn an_origin_form_request_is_refused() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let answer = bench.ask(&format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", site.addr)).await;
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.field("tidegate-refused"), Some("malformed"));
    assert_eq!(site.count(), 0);
}

#[tokio::test]
async fn an_upload_of_unknown_length_is_relayed_with_any_method() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    for (number, method) in ["POST", "GET"].into_iter().enumerate() {
        let request = get(&site, "Transfer-Encoding: chunked\r\n").replace("GET", method);
        let answer = bench.ask(&(request + "3\r\nabc\r\n0\r\n\r\n")).await;
        assert_eq!(answer.status(), 200);
        let seen = site.request(number).await;
        assert!(seen.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{method}: {seen}");
    }
}

#[tokio::test]
async fn the_proxy_sends_100_continue_when_it_needs_the_body() {
    let site = Site::answering(OK).await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    let request = get(&site, "Expect: 100-continue\r\nContent-Length: 3\r\n");
    client.send(&request.replace("GET", "PUT")).await;
    assert_eq!(client.head().await.status(), 100);
    client.send("abc").await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(site.request(0).await.ends_with("abc"));
}

#[tokio::test]
async fn a_kept_connection_is_used_again_and_a_dead_one_costs_nothing() {
    let site = Site::scripted(|number, _| (OK.to_owned(), number == 1)).await;
    let bench = Bench::start().await;
    for _ in 0..3 {
        assert_eq!(bench.get(&site.url("/")).await.status(), 200);
    }
    let connections = site.connections.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(connections, 2, "the site closed its first connection after two answers");
}

/// Closes a connection on its second request, like a server whose idle timeout ends at that moment.
async fn impatient() -> Site {
    Site::scripted(
        |number, _| if number == 1 { (String::new(), true) } else { (OK.to_owned(), false) },
    )
    .await
}

#[tokio::test]
async fn a_get_on_a_stale_connection_is_sent_once_more() {
    let site = impatient().await;
    let bench = Bench::start().await;
    assert_eq!(bench.get(&site.url("/1")).await.status(), 200);
    assert_eq!(bench.get(&site.url("/2")).await.status(), 200);
    assert_eq!(site.count(), 3);
    assert_eq!(bench.metric("tidegate_upstream_retries_total"), 1.0);
}

#[tokio::test]
async fn a_post_is_never_repeated() {
    let site = impatient().await;
    let bench = Bench::start().await;
    assert_eq!(bench.get(&site.url("/1")).await.status(), 200);
    let post = get(&site, "Content-Length: 1\r\n").replace("GET", "POST") + "x";
    let answer = bench.ask(&post).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.field("proxy-status"), Some("tidegate; error=http_response_incomplete"));
    assert_eq!(site.count(), 2);
}

#[tokio::test]
async fn a_first_answer_that_breaks_off_is_not_asked_for_again() {
    let site = Site::scripted(|_, _| (String::new(), true)).await;
    let bench = Bench::start().await;
    assert_eq!(bench.get(&site.url("/")).await.status(), 502);
    assert_eq!(site.count(), 1);
    until("the connection is counted out", || bench.metric("tidegate_upstream_connections") == 0.0)
        .await;
}
