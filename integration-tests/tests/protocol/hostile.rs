//! Requests that two parsers would read differently: no part of them reaches a site, and the bytes
//! after them are never served.

use std::time::Duration;

use integration_tests::wait::wait_until;
use tokio::io::AsyncWriteExt as _;

use crate::{
    bench::{Client, FOLLOWING, SOON, addressed, check, each, exchange, member, statuses},
    origin::{OK, Origin, Reply},
};

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// A POST with these fields in addition to Host, and this body.
fn post(fields: &str, body: &str) -> Vec<u8> {
    format!("POST http://SITE/x HTTP/1.1\r\nHost: SITE\r\n{fields}\r\n{body}").into_bytes()
}

fn chunked(body: &str) -> Vec<u8> {
    post(CHUNKED, body)
}

/// A GET with these fields in addition to Host.
fn get(fields: &str) -> Vec<u8> {
    format!("GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\n{fields}\r\n").into_bytes()
}

fn line(line: &str) -> Vec<u8> {
    format!("{line}\r\nHost: SITE\r\n\r\n").into_bytes()
}

/// For each row the proxy sends exactly one response, with one of these statuses. Nothing reaches
/// the site, the connection ends, and a request after it is not served.
async fn are_refused(rows: Vec<(&'static str, &'static [u16], Vec<u8>)>) {
    let member = member().await;
    let proxy = member.proxy();
    let rows = rows.into_iter().map(|(name, allowed, bytes)| (name, (allowed, bytes)));
    each(rows, move |(allowed, bytes)| async move {
        let site = Origin::answering(OK).await;
        let all = addressed(&[&bytes, FOLLOWING.as_bytes()].concat(), site.address());
        let answer = exchange(proxy, all).await;
        let statuses = statuses(&answer);
        check(statuses.len() == 1 && allowed.contains(&statuses[0]), || format!("{answer:?}"))?;
        check(answer.to_lowercase().contains("proxy-status: tidegate; error="), || answer.clone())?;
        check(site.received().is_empty(), || format!("the site got {:?}", site.received()))
    })
    .await;
    let counted = member.metric("tidegate_refused_total", &[("reason", "malformed")]).await;
    assert!(counted >= 1.0, "refusals are counted");
}

#[tokio::test]
async fn a_length_that_is_given_twice_or_badly_is_refused() {
    let cl = |value: &str| post(&format!("Content-Length: {value}\r\n"), "hello");
    are_refused(vec![
        (
            "CL then TE",
            &[400],
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ),
        (
            "TE then CL",
            &[400],
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        ),
        (
            "odd letters",
            &[400],
            post("tRANSFER-eNCODING: CHUNKED\r\ncontent-LENGTH: 5\r\n", "0\r\n\r\n"),
        ),
        (
            "CL of 0 beside TE",
            &[400],
            post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ),
        ("two equal CLs", &[400], post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")),
        ("two different CLs", &[400], post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")),
        ("a list of equal CLs", &[400], cl("5, 5")),
        ("a list of different CLs", &[400], cl("5, 6")),
        ("a plus", &[400], cl("+5")),
        ("a minus", &[400], cl("-5")),
        ("hex", &[400], cl("0x5")),
        ("an exponent", &[400], cl("5e0")),
        ("a fraction", &[400], cl("5.0")),
        ("empty", &[400], cl("")),
        ("a quoted number", &[400], cl("\"5\"")),
        ("an underscore", &[400], cl("1_0")),
        ("2^64 + 5", &[400], cl("18446744073709551621")),
        ("a space inside", &[400], cl("5 5")),
        ("a full-width digit", &[400], cl("\u{ff15}")),
        ("a vertical tab", &[400], cl("\u{b}5")),
    ])
    .await;
}

#[tokio::test]
async fn a_transfer_coding_that_is_not_plainly_chunked_is_refused() {
    let te = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n");
    let bad: &[u16] = &[400, 501];
    are_refused(vec![
        ("twice", bad, post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")),
        ("twice, one of them another", bad, post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "0\r\n\r\n")),
        ("chunked twice", bad, te("chunked, chunked")),
        ("not the last", bad, te("chunked, gzip")),
        ("gzip before it", &[501], te("gzip, chunked")),
        ("only gzip", bad, te("gzip")),
        ("identity", bad, te("identity")),
        ("identity before it", bad, te("identity, chunked")),
        ("unknown", bad, te("xchunked")),
        ("junk behind", bad, te("chunkedx")),
        ("a parameter", bad, te("chunked;x=1")),
        ("a word behind", bad, te("chunked chunked")),
        ("quoted", bad, te("\"chunked\"")),
        ("single quotes", bad, te("'chunked'")),
        ("a vertical tab", bad, te("\u{b}chunked")),
        ("a form feed", bad, te("\u{c}chunked")),
        ("an empty element", bad, te(", chunked")),
        ("a comma behind", bad, te("chunked,")),
        ("empty", bad, te("")),
        ("a Latin letter with an accent", bad, te("chunk\u{e9}d")),
        ("a NUL", bad, te("chunked\0")),
        ("in HTTP/1.0", bad, b"POST http://SITE/x HTTP/1.0\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec()),
        ("a space before the colon", bad, post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n")),
        ("folded", bad, post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n")),
        ("behind a CR", bad, post("Content-Length: 5\r\nTransfer-Encoding:\rchunked\r\n", "0\r\n\r\n")),
    ])
    .await;
}

#[tokio::test]
async fn a_line_that_is_not_a_field_is_refused() {
    let bad: &[u16] = &[400];
    are_refused(vec![
        ("a space before the colon", bad, get("X-A : b\r\n")),
        ("a tab before the colon", bad, get("X-A\t: b\r\n")),
        ("a folded line", bad, get("X-A: b\r\n c\r\n")),
        ("a line folded with a tab", bad, get("X-A: b\r\n\tc\r\n")),
        (
            "a first line that begins with a space",
            bad,
            b"GET http://SITE/x HTTP/1.1\r\n X-A: b\r\nHost: SITE\r\n\r\n".to_vec(),
        ),
        ("an empty fold before the end", bad, get("X-A: b\r\n \r\n")),
        ("a CR in a value", bad, get("X-A: b\rc\r\n")),
        ("a CR before a field", bad, get("X-A: b\rX-B: c\r\n")),
        ("two CRs", bad, get("X-A: b\r\r\n")),
        ("an LF in a head", bad, get("X-A: b\nX-B: c\r\n")),
        ("only LFs", bad, b"GET http://SITE/x HTTP/1.1\nHost: SITE\n\n".to_vec()),
        ("a NUL in a value", bad, get("X-A: b\0c\r\n")),
        ("a NUL in a name", bad, get("X\0A: b\r\n")),
        ("an escape in a value", bad, get("X-A: \x1b[2J\r\n")),
        ("DEL in a value", bad, get("X-A: \x7f\r\n")),
        ("a space in a name", bad, get("X A: b\r\n")),
        ("a bracket in a name", bad, get("X[A]: b\r\n")),
        ("a quote in a name", bad, get("\"X\": b\r\n")),
        ("a letter beyond ASCII in a name", bad, get("X-\u{e9}: b\r\n")),
        ("no name", bad, get(": b\r\n")),
        ("no colon", bad, get("X-A\r\n")),
        ("a request line among the fields", bad, get("GET http://SITE/following HTTP/1.1\r\n")),
    ])
    .await;
}

#[tokio::test]
async fn a_request_line_is_never_repaired() {
    let bad: &[u16] = &[400, 505];
    are_refused(vec![
        ("an extra word", bad, line("GET http://SITE/x HTTP/1.1 HTTP/1.1")),
        ("a space in the target", bad, line("GET http://SITE/x y HTTP/1.1")),
        ("two spaces behind the method", bad, line("GET  http://SITE/x HTTP/1.1")),
        ("two spaces before the version", bad, line("GET http://SITE/x  HTTP/1.1")),
        ("a space at the end", bad, line("GET http://SITE/x HTTP/1.1 ")),
        ("a space at the start", bad, line(" GET http://SITE/x HTTP/1.1")),
        ("tabs", bad, line("GET\thttp://SITE/x\tHTTP/1.1")),
        ("a version to come", &[505], line("GET http://SITE/x HTTP/9.9")),
        ("HTTP/2.0 in text", &[505], line("GET http://SITE/x HTTP/2.0")),
        ("HTTP/1.2", bad, line("GET http://SITE/x HTTP/1.2")),
        ("HTTP/0.9", bad, line("GET http://SITE/x HTTP/0.9")),
        ("a version in small letters", bad, line("GET http://SITE/x http/1.1")),
        ("a version of two digits", bad, line("GET http://SITE/x HTTP/1.10")),
        ("half a version", bad, line("GET http://SITE/x HTTP/1")),
        ("another protocol", bad, line("GET http://SITE/x ICY/1.1")),
        ("no version", bad, line("GET http://SITE/x")),
        ("only a method", bad, line("GET")),
        ("a control byte in the target", bad, line("GET http://SITE/\x01 HTTP/1.1")),
        ("a CR in the target", bad, line("GET http://SITE/\rx HTTP/1.1")),
        ("a NUL in the target", bad, line("GET http://SITE/\0x HTTP/1.1")),
        ("a quote in the method", bad, line("G\"T http://SITE/x HTTP/1.1")),
        ("a colon behind the method", bad, line("GET: http://SITE/x HTTP/1.1")),
        (
            "five empty lines first",
            bad,
            [&b"\r\n\r\n\r\n\r\n\r\n"[..], &line("GET http://SITE/x HTTP/1.1")].concat(),
        ),
        ("an LF first", bad, [&b"\n"[..], &line("GET http://SITE/x HTTP/1.1")].concat()),
    ])
    .await;
}

#[tokio::test]
async fn bytes_that_are_not_http_are_refused_or_cut_off_and_the_proxy_continues() {
    let bad: &[u16] = &[400, 505];
    let noise: Vec<u8> =
        (0..2048_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    are_refused(vec![
        ("a TLS hello", bad, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("the preface of HTTP/2", bad, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("NULs", bad, vec![0; 4096]),
        ("noise", bad, noise),
        ("another protocol", bad, b"\x05\x01\x00".to_vec()),
        ("mail", bad, b"EHLO crawler.example\r\n".to_vec()),
    ])
    .await;
}

/// Each row is a message whose body becomes invalid after its head has passed: the site never gets
/// all of it, and the bytes after it are not served.
async fn are_never_whole(rows: Vec<(&'static str, Vec<u8>)>) {
    let member = member().await;
    let proxy = member.proxy();
    each(rows, move |bytes| async move {
        let site = Origin::answering(OK).await;
        let all = addressed(&[&bytes, FOLLOWING.as_bytes()].concat(), site.address());
        let answer = exchange(proxy, all).await;
        check(statuses(&answer) == [400] || answer.is_empty(), || format!("answered {answer:?}"))?;
        check(site.requests().is_empty(), || format!("the site has {:?}", site.requests()))?;
        check(!site.received().contains("following"), || site.received())
    })
    .await;
}

#[tokio::test]
async fn chunks_that_are_not_to_the_letter_never_make_a_whole_request() {
    are_never_whole(vec![
        ("hex with a prefix", chunked("0x5\r\nhello\r\n0\r\n\r\n")),
        ("a plus", chunked("+5\r\nhello\r\n0\r\n\r\n")),
        ("a minus", chunked("-5\r\nhello\r\n0\r\n\r\n")),
        ("an underscore", chunked("1_0\r\n0123456789012345\r\n0\r\n\r\n")),
        ("no size", chunked("\r\nhello\r\n0\r\n\r\n")),
        ("no size but an extension", chunked(";a=b\r\nhello\r\n0\r\n\r\n")),
        ("a space before the size", chunked(" 5\r\nhello\r\n0\r\n\r\n")),
        ("a space behind the size", chunked("5 \r\nhello\r\n0\r\n\r\n")),
        ("17 digits", chunked("00000000000000005\r\nhello\r\n0\r\n\r\n")),
        ("2^64 + 5", chunked("10000000000000005\r\nhello\r\n0\r\n\r\n")),
        ("no hex", chunked("g\r\nhello\r\n0\r\n\r\n")),
        ("an LF behind the size", chunked("5\nhello\r\n0\r\n\r\n")),
        ("a CR behind the size", chunked("5\rhello\r\n0\r\n\r\n")),
        ("an LF in an extension", chunked("5;a\nhello\r\n0\r\n\r\n")),
        ("a CR in an extension", chunked("5;a\rb\r\nhello\r\n0\r\n\r\n")),
        ("a NUL in an extension", chunked("5;a\0\r\nhello\r\n0\r\n\r\n")),
        ("data that goes on", chunked("5\r\nhelloX\r\n0\r\n\r\n")),
        ("data without an end", chunked("5\r\nhello0\r\n\r\n")),
        ("an LF behind the data", chunked("5\r\nhello\n0\r\n\r\n")),
        ("the last chunk ends in an LF", chunked("5\r\nhello\r\n0\n\n")),
        ("a trailer that is none", chunked("0\r\nX A: b\r\n\r\n")),
        ("a folded trailer", chunked("0\r\nA: b\r\n c\r\n\r\n")),
        ("a bare CR at the end", chunked("0\r\n\rGET http://SITE/following HTTP/1.1\r\n")),
    ])
    .await;
}

#[tokio::test]
async fn chunk_extensions_and_trailers_are_bounded_and_not_passed_on() {
    let member = member().await;
    let site = Origin::answering(OK).await;
    let endless = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(80 << 10));
    let answer = exchange(member.proxy(), addressed(&chunked(&endless), site.address())).await;
    assert_eq!(statuses(&answer), [400], "{answer}");
    let trailers = format!("0\r\n{}\r\n", "X-T: v\r\n".repeat(10_000));
    let answer = exchange(member.proxy(), addressed(&chunked(&trailers), site.address())).await;
    assert!(matches!(statuses(&answer)[..], [400 | 431]), "{answer}");
    assert_eq!(site.requests().len(), 0, "{:?}", site.requests());
    let body = "5;a=b;c=\"d\"\r\nhello\r\n0;e\r\nX-Trailer: t\r\n\r\n";
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(&chunked(body), site.address())).await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = &site.requests()[0];
    let (head, body) = seen.split_once("\r\n\r\n").expect("a head and a body");
    assert!(!body.contains("a=b") && !body.contains(";e"), "extensions are of one hop: {body:?}");
    assert!(!head.to_lowercase().contains("x-trailer"), "a trailer is no header: {head}");
}

#[tokio::test]
async fn any_body_is_relayed_with_any_method() {
    let member = member().await;
    let proxy = member.proxy();
    let inner = "GET http://SITE/following HTTP/1.1\r\nHost: SITE\r\n\r\n";
    let rows = ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "QUERY"]
        .into_iter()
        .flat_map(|method| [(method, (method, false)), (method, (method, true))]);
    each(rows, move |(method, chunks)| async move {
        let site = Origin::answering(OK).await;
        // As long with the address filled in.
        let inner = String::from_utf8(addressed(inner.as_bytes(), site.address())).expect("text");
        let (field, body) = match chunks {
            false => (format!("Content-Length: {}", inner.len()), inner.clone()),
            true => ("Transfer-Encoding: chunked".into(), format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len())),
        };
        let address = site.address();
        let request = format!("{method} http://{address}/x HTTP/1.1\r\nHost: {address}\r\n{field}\r\nConnection: close\r\n\r\n{body}");
        let answer = exchange(proxy, request).await;
        check(statuses(&answer) == [200], || answer.clone())?;
        let requests = site.requests();
        check(requests.len() == 1 && requests[0].contains(&inner), || format!("{requests:?}"))
    })
    .await;
}

#[tokio::test]
async fn the_rest_of_a_body_after_an_early_response_is_never_a_request() {
    let member = member().await;
    let site =
        Origin::early(|_, _| Reply::whole("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
            .await;
    let mut client = Client::connect(member.proxy()).await;
    let address = site.address();
    let body = "x".repeat(1000) + &FOLLOWING.replace("SITE", &address.to_string());
    let head = format!(
        "POST http://{address}/x HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(format!("{head}{}", &body[..500])).await;
    assert!(client.head().await.starts_with("HTTP/1.1 403 "), "it is relayed at once");
    client.send(&body[500..]).await;
    client.stream.shutdown().await.expect("the connection is open");
    let rest = client.rest().await;
    assert!(!rest.contains("HTTP/1."), "the rest of a body is answered: {rest:?}");
    assert!(site.requests().len() <= 1, "{:?}", site.requests());
    let next = exchange(
        member.proxy(),
        format!("GET http://{address}/next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    )
    .await;
    assert_eq!(statuses(&next), [403], "a new connection is served: {next}");
}

#[tokio::test]
async fn bytes_behind_an_upgrade_wait_for_the_answer() {
    let member = member().await;
    let site = Origin::answering(OK).await;
    let address = site.address();
    let upgrade = format!(
        "GET http://{address}/ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    let answer = exchange(member.proxy(), format!("{upgrade}\x16\x03early bytes\r\n\r\n")).await;
    assert_eq!(statuses(&answer), [200, 400], "{answer}");
    assert!(!site.received().contains("early"), "{}", site.received());
}

#[tokio::test]
async fn a_wish_for_h2c_stays_here() {
    let member = member().await;
    let site = Origin::answering(OK).await;
    let request = get(
        "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    );
    let answer = exchange(member.proxy(), addressed(&request, site.address())).await;
    assert_eq!(statuses(&answer), [200]);
    let seen = site.received().to_lowercase();
    assert!(
        !seen.contains("h2c") && !seen.contains("http2-settings") && !seen.contains("upgrade"),
        "{seen}"
    );
}

#[tokio::test]
async fn line_ends_that_are_encoded_stay_so() {
    let member = member().await;
    let site = Origin::answering(OK).await;
    let request = "GET http://SITE/a%0d%0aX-Injected:%20yes?b=%0a%00 HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\n\r\n";
    exchange(member.proxy(), addressed(request.as_bytes(), site.address())).await;
    let seen = site.received();
    assert!(seen.starts_with("GET /a%0d%0aX-Injected:%20yes?b=%0a%00 HTTP/1.1\r\n"), "{seen}");
}

#[tokio::test]
async fn a_client_that_stops_within_a_body_sends_no_complete_request() {
    let member = member().await;
    let proxy = member.proxy();
    let rows = [
        ("a length", post("Content-Length: 100\r\n", "hello")),
        ("chunks", chunked("5\r\nhello\r\n")),
        ("within a chunk", chunked("5\r\nhel")),
        ("before the last line end", chunked("5\r\nhello\r\n0\r\n")),
        ("within the trailers", chunked("5\r\nhello\r\n0\r\nX-T: v\r\n")),
    ];
    each(rows, move |bytes| async move {
        let site = Origin::answering(OK).await;
        let mut client = Client::connect(proxy).await;
        client.send(addressed(&bytes, site.address())).await;
        let arrived = async {
            while site.received().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, arrived).await.map_err(|_| "nothing reached the site")?;
        drop(client);
        let ended = async {
            while site.ended() < site.connections() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, ended).await.map_err(|_| "the site's connection stays open")?;
        check(site.requests().is_empty(), || format!("{:?}", site.requests()))
    })
    .await;
}

#[tokio::test]
async fn a_client_that_speaks_tls_to_the_proxy_is_reported_once_with_the_fix() {
    let member = member().await;
    for _ in 0..3 {
        // A record of TLS whose length contains a line feed.
        let hello = b"\x16\x03\x01\x00\x0a\x01\x00\x00\x06".to_vec();
        let answer = exchange(member.proxy(), hello).await;
        assert_eq!(statuses(&answer), [400]);
        assert!(answer.contains("the URL of the proxy begins with http://"), "{answer}");
    }
    let reports = || member.log().matches("a client speaks TLS").count();
    wait_until("the report is in the log", SOON, async || reports() > 0).await;
    assert_eq!(reports(), 1);
    let log = member.log();
    assert!(log.contains("client=127.0.0.1"), "{log}");
}
