//! Responses of sites: relayed with their meaning intact, or replaced by a 502; never more than one
//! response to a request.

use std::time::Duration;

use crate::{
    bench::{Answer, Client, addressed, ask, check, each, exchange, member, statuses},
    origin::{OK, Origin, Reply},
};

const GET: &str = "GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\n\r\n";

/// The client's result if a site sends this response and closes.
async fn relayed(proxy: std::net::SocketAddr, answer: Vec<u8>) -> String {
    let site = Origin::scripted(move |_, _| Reply::last(answer.clone())).await;
    let get = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    exchange(proxy, addressed(get.as_bytes(), site.address())).await
}

#[tokio::test]
async fn an_invalid_response_is_a_bad_gateway() {
    let member = member().await;
    let proxy = member.proxy();
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello").into_bytes();
    let rows = vec![
        ("garbage", b"garbage\r\n\r\n".to_vec()),
        ("HTTP/0.9", b"<html>hello</html>".to_vec()),
        ("nothing", Vec::new()),
        ("half a status line", b"HTTP/1.1 200".to_vec()),
        ("half a head", b"HTTP/1.1 200 OK\r\nX-A: b\r\n".to_vec()),
        ("a status of two digits", b"HTTP/1.1 20 OK\r\n\r\n".to_vec()),
        ("a status of four digits", b"HTTP/1.1 2000 OK\r\n\r\n".to_vec()),
        ("a version to come", b"HTTP/3.0 200 OK\r\n\r\n".to_vec()),
        ("another protocol", b"ICY 200 OK\r\n\r\n".to_vec()),
        ("mail", b"220 mail.example ESMTP\r\n".to_vec()),
        ("a TLS alert", b"\x15\x03\x01\x00\x02\x02\x46".to_vec()),
        ("two different lengths", head("Content-Length: 5\r\nContent-Length: 6\r\n")),
        ("a list of different lengths", head("Content-Length: 5, 6\r\n")),
        ("a length with a plus", head("Content-Length: +5\r\n")),
        ("a negative length", head("Content-Length: -5\r\n")),
        ("a length in hex", head("Content-Length: 0x5\r\n")),
        ("a length beyond 64 bits", head("Content-Length: 18446744073709551621\r\n")),
        ("an empty length", head("Content-Length:\r\n")),
        ("gzip before chunked", head("Transfer-Encoding: gzip, chunked\r\n")),
        ("an unknown coding", head("Transfer-Encoding: xchunked\r\n")),
        ("chunked twice", head("Transfer-Encoding: chunked, chunked\r\n")),
        (
            "chunked in HTTP/1.0",
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_vec(),
        ),
        ("a space before the colon", head("X-A : b\r\n")),
        ("a folded line", head("X-A: b\r\n c\r\n")),
        ("a CR in a value", head("X-A: b\rX-B: c\r\n")),
        ("a NUL in a value", head("X-A: b\0c\r\n")),
        ("a bad name", head("X A: b\r\n")),
        ("no colon", head("X-A\r\n")),
        (
            "a change of protocol that nobody asked for",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
                .to_vec(),
        ),
        ("a head of a mebibyte", head(&format!("X-A: {}\r\n", "a".repeat(1 << 20)))),
        ("500 fields", head(&"X-A: b\r\n".repeat(500))),
    ];
    each(rows, move |answer| async move {
        let text = relayed(proxy, answer).await;
        check(statuses(&text) == [502], || text.clone())?;
        check(text.to_lowercase().contains("proxy-status: tidegate; error="), || text.clone())
    })
    .await;
}

#[tokio::test]
async fn a_body_that_does_not_come_whole_is_never_whole_for_the_client() {
    let member = member().await;
    let proxy = member.proxy();
    let length = |body: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 10\r\n\r\n{body}")
            .into_bytes()
    };
    let chunked = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        )
        .into_bytes()
    };
    let rows = vec![
        ("short of its length", length("hello")),
        ("nothing of it", length("")),
        ("no last chunk", chunked("5\r\nhello\r\n")),
        ("half a chunk", chunked("a\r\nhello")),
        ("no line end behind the last chunk", chunked("5\r\nhello\r\n0\r\n")),
        ("a size that is none", chunked("5\r\nhello\r\nxyz\r\n")),
        ("a size with a prefix", chunked("5\r\nhello\r\n0x5\r\nhello\r\n0\r\n\r\n")),
        ("a size beyond 64 bits", chunked("5\r\nhello\r\n10000000000000005\r\nhello\r\n0\r\n\r\n")),
        ("data that goes on", chunked("5\r\nhelloX\r\n0\r\n\r\n")),
        ("an LF in an extension", chunked("5\r\nhello\r\n0;a\nb\r\n\r\n")),
        (
            "extensions without end",
            chunked(&format!("5\r\nhello\r\n0;{}\r\n\r\n", "a".repeat(80 << 10))),
        ),
        (
            "trailers without end",
            chunked(&format!("5\r\nhello\r\n0\r\n{}\r\n", "X-T: v\r\n".repeat(20_000))),
        ),
    ];
    each(rows, move |answer| async move {
        let text = relayed(proxy, answer).await;
        match statuses(&text)[..] {
            // A client without any bytes has no complete response either.
            [] | [502] => Ok(()),
            [200] => {
                let (head, body) = text.split_once("\r\n\r\n").ok_or("no head")?;
                let head = head.to_lowercase();
                let whole = if head.contains("transfer-encoding") {
                    body.ends_with("0\r\n\r\n")
                } else {
                    !head.contains(&format!("content-length: {}", 10)) || body.len() >= 10
                };
                check(!whole, || text.clone())
            }
            _ => Err(text),
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_in_any_framing_is_relayed_whole() {
    let member = member().await;
    let proxy = member.proxy();
    let of = |version: &str, fields: &str, body: &str| {
        format!("HTTP/{version} 200 OK\r\nContent-Type: image/png\r\n{fields}\r\n{body}")
            .into_bytes()
    };
    let rows = vec![
        ("a length", of("1.1", "Content-Length: 5\r\n", "hello")),
        ("chunks", of("1.1", "Transfer-Encoding: chunked\r\n", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")),
        (
            "chunks with extensions",
            of("1.1", "Transfer-Encoding: chunked\r\n", "5;a=b\r\nhello\r\n0;c\r\n\r\n"),
        ),
        (
            "chunks with trailers",
            of(
                "1.1",
                "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n",
                "5\r\nhello\r\n0\r\nX-T: v\r\n\r\n",
            ),
        ),
        (
            "chunks in capitals",
            of("1.1", "Transfer-Encoding: Chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ),
        (
            "a length beside chunks",
            of(
                "1.1",
                "Content-Length: 99\r\nTransfer-Encoding: chunked\r\n",
                "5\r\nhello\r\n0\r\n\r\n",
            ),
        ),
        ("up to the end", of("1.1", "", "hello")),
        ("up to the end in HTTP/1.0", of("1.0", "", "hello")),
        ("a length in HTTP/1.0", of("1.0", "Content-Length: 5\r\n", "hello")),
        ("two equal lengths", of("1.1", "Content-Length: 5\r\nContent-Length: 5\r\n", "hello")),
    ];
    each(rows, move |answer| async move {
        let site = Origin::scripted(move |_, _| Reply::last(answer.clone())).await;
        let answer = ask(proxy, addressed(GET.as_bytes(), site.address())).await;
        let lengths = answer.head.to_lowercase().matches("content-length:").count();
        let codings = answer.head.to_lowercase().matches("transfer-encoding:").count();
        check(answer.status() == 200 && lengths + codings <= 1, || answer.head.clone())?;
        check(!answer.head.contains("X-T: v"), || {
            format!("a trailer among the fields: {}", answer.head)
        })?;
        let text = answer.text();
        let body = if codings == 1 { plain(&text) } else { text };
        check(body == "hello", || format!("{}{body}", answer.head))
    })
    .await;
}

/// The data of a chunked body.
fn plain(chunks: &str) -> String {
    let (mut rest, mut data) = (chunks, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        data.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    data
}

#[tokio::test]
async fn an_answer_without_a_body_leaves_the_connection_in_step() {
    let member = member().await;
    let site = Origin::scripted(|_, request| {
        let (method, rest) = request.split_once(' ').unwrap_or_default();
        let status = match rest.split(' ').next().unwrap_or_default() {
            "/204" => "204 No Content",
            "/304" => "304 Not Modified",
            "/205" => "205 Reset Content",
            _ => "200 OK",
        };
        let length = if status.starts_with("205") { 0 } else { 5 };
        let body = if method == "GET" && status == "200 OK" { "hello" } else { "" };
        Reply::whole(format!(
            "HTTP/1.1 {status}\r\nContent-Type: image/png\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    })
    .await;
    let mut client = Client::connect(member.proxy()).await;
    for (method, path, status) in [
        ("HEAD", "/200", "200"),
        ("GET", "/204", "204"),
        ("GET", "/304", "304"),
        ("HEAD", "/304", "304"),
        ("GET", "/205", "205"),
    ] {
        let bytes = format!("{method} http://SITE{path} HTTP/1.1\r\nHost: SITE\r\n\r\n");
        client.send(addressed(bytes.as_bytes(), site.address())).await;
        let head = client.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {head}");
        client.send(addressed(GET.as_bytes(), site.address())).await;
        let next = client.answer().await;
        assert_eq!((next.status(), &*next.text()), (200, "hello"), "after {method} {path}");
    }
}

#[tokio::test]
async fn response_fields_are_relayed_except_hop_by_hop_ones() {
    let member = member().await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
        Proxy-Authenticate: Basic\r\nProxy-Connection: close\r\nTrailer: X-T\r\nUpgrade: h2c\r\nTidegate-Verdict: captcha\r\n\
        Tidegate-Refused: limit\r\nETag: W/\"a\"\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Encoding: gzip\r\n\
        X-Latin: caf\xe9\xff\x80\r\nVia: 1.1 cdn\r\nServer: x\r\nRetry-After: 5\r\nContent-Length: 2\r\n\r\nhi";
    let site = Origin::answering(&answer[..]).await;
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(GET.as_bytes(), site.address())).await;
    let Answer { head, .. } = client.answer().await;
    let lower = head.to_lowercase();
    for gone in
        ["x-hop", "keep-alive", "proxy-", "trailer", "upgrade", "captcha", "tidegate-refused"]
    {
        assert!(!lower.contains(gone), "{gone} is in {head}");
    }
    for kept in ["etag: W/\"a\"", "content-encoding: gzip", "server: x", "retry-after: 5"] {
        assert!(lower.contains(&kept.to_lowercase()), "{kept} is not in {head}");
    }
    let cookies = lower.find("set-cookie: a=b").zip(lower.find("set-cookie: c=d"));
    assert!(cookies.is_some_and(|(first, second)| first < second), "{head}");
    let via = lower.find("via: 1.1 cdn").zip(lower.find("via: 1.1 tidegate"));
    assert!(via.is_some_and(|(first, second)| first < second), "{head}");
    assert!(head.contains("caf\u{fffd}\u{fffd}\u{fffd}"), "bytes beyond ASCII pass: {head}");
}

#[tokio::test]
async fn the_sites_429_is_the_sites_and_nothing_is_added() {
    let member = member().await;
    let site = Origin::answering(
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let answer = ask(member.proxy(), addressed(GET.as_bytes(), site.address())).await;
    assert_eq!((answer.status(), answer.field("retry-after")), (429, Some("7")));
    for ours in ["tidegate-refused", "proxy-status", "x-ratelimit-limit", "cache-control"] {
        assert_eq!(answer.field(ours), None, "{}", answer.head);
    }
}

#[tokio::test]
async fn bytes_beyond_an_answer_are_never_the_next_one() {
    let member = member().await;
    let extra = "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\nevil";
    let rows = [
        format!("{OK}{extra}"),
        format!("HTTP/1.1 204 No Content\r\n\r\n{extra}"),
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n{extra}"
        ),
        format!("{OK}x"),
    ];
    for first in rows {
        let site = Origin::scripted(move |number, _| match number {
            0 => Reply::whole(first.clone()),
            _ => Reply::whole(
                "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 4\r\n\r\ngood",
            ),
        })
        .await;
        let mut client = Client::connect(member.proxy()).await;
        client.send(addressed(GET.as_bytes(), site.address())).await;
        client.answer().await;
        for _ in 0..2 {
            client.send(addressed(GET.as_bytes(), site.address())).await;
            assert_eq!(client.answer().await.text(), "good");
        }
        assert!(site.connections() >= 2, "such a connection is not used again");
    }
}

#[tokio::test]
async fn a_response_is_streamed_even_if_it_is_inspected() {
    let member = member().await;
    for kind in ["image/png", "text/html", "text/event-stream"] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
        );
        let site = Origin::scripted(move |_, _| Reply {
            pieces: vec![head.clone().into(), b"4\r\nlast\r\n0\r\n\r\n".to_vec()],
            pause: Duration::from_secs(3),
            close: false,
        })
        .await;
        let mut client = Client::connect(member.proxy()).await;
        client.send(addressed(GET.as_bytes(), site.address())).await;
        let first = async {
            client.head().await;
            client.exactly(10).await
        };
        let first = tokio::time::timeout(Duration::from_secs(2), first).await;
        assert_eq!(first.expect("before the site is done"), b"5\r\nfirst\r\n", "{kind}");
    }
}
