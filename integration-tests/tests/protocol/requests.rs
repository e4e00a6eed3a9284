//! Well-formed requests: the bytes that reach the site, and those that must not.

use crate::{
    bench::{Client, FOLLOWING, addressed, ask, check, each, exchange, member, statuses},
    origin::{OK, Origin, Reply, field},
};

/// A GET with these fields in addition to Host, which closes its connection.
fn get(fields: &str) -> String {
    format!("GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\n{fields}\r\n")
}

/// The bytes that the site received for `request`, which must get a 200.
async fn seen(proxy: std::net::SocketAddr, request: &[u8]) -> Result<String, String> {
    let site = Origin::answering(OK).await;
    let answer = exchange(proxy, addressed(request, site.address())).await;
    check(statuses(&answer) == [200], || answer.clone())?;
    let address = site.address().to_string();
    Ok(site.received().replace(&address, "SITE"))
}

#[tokio::test]
async fn a_target_reaches_its_site_byte_for_byte() {
    let member = member().await;
    let proxy = member.proxy();
    let rows = [
        "/",
        "//",
        "//a//b",
        "/a/../b/./c",
        "/a%2fb%2Fc",
        "/%41%zz%",
        "/a;b=c,d",
        "/a?b=c&d=e?f",
        "/?",
        "/a?",
        "/~a/(b)'c'/*!$&+=:@",
        "/a|b\"c{d}^e`f[g]",
        "/http://other.example/x",
        "/caf\u{e9}?\u{fc}",
    ];
    each(rows.map(|path| (path, path)), move |path| async move {
        let request =
            format!("GET http://SITE{path} HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\n\r\n");
        let site = Origin::answering(OK).await;
        let answer = exchange(proxy, addressed(request.as_bytes(), site.address())).await;
        if statuses(&answer) == [400] {
            // Bytes that no URI has may be refused; they may not be changed.
            let usual = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:@?".contains(c);
            return check(!path.chars().all(usual), || format!("refused: {answer}"));
        }
        let line = format!("GET {path} HTTP/1.1\r\n");
        check(site.received().starts_with(&line), || format!("{answer}\n{}", site.received()))
    })
    .await;
}

#[tokio::test]
async fn an_empty_path_becomes_a_slash_and_keeps_its_query() {
    let member = member().await;
    for (target, line) in [("", "GET / HTTP/1.1\r\n"), ("?a=b", "GET /?a=b HTTP/1.1\r\n")] {
        let request =
            format!("GET http://SITE{target} HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\n\r\n");
        let seen = seen(member.proxy(), request.as_bytes()).await.expect("it is served");
        assert!(seen.starts_with(line), "{seen}");
    }
}

#[tokio::test]
async fn the_target_names_the_site_and_not_the_host_field() {
    let member = member().await;
    for host in ["other.example", "other.example:81", "[::1]:99", "127.0.0.1:1"] {
        let request =
            format!("GET http://SITE/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let seen = seen(member.proxy(), request.as_bytes()).await.expect("it is served");
        assert_eq!(field(&seen, "host"), Some("SITE"), "{seen}");
        assert_eq!(seen.to_lowercase().matches("host:").count(), 1, "{seen}");
    }
}

#[tokio::test]
async fn a_request_without_one_good_host_is_refused() {
    let member = member().await;
    let proxy = member.proxy();
    let rows = [
        ("none", ""),
        ("two equal ones", "Host: SITE\r\nHost: SITE\r\n"),
        ("two different ones", "Host: SITE\r\nHost: other.example\r\n"),
        ("empty", "Host:\r\n"),
        ("spaces", "Host:   \r\n"),
        ("a list", "Host: SITE, other.example\r\n"),
        ("a path", "Host: SITE/x\r\n"),
        ("user information", "Host: user@SITE\r\n"),
        ("a space inside", "Host: a b\r\n"),
        ("a bad port", "Host: a.example:x\r\n"),
        ("a port too large", "Host: a.example:99999999\r\n"),
        ("an open bracket", "Host: [::1\r\n"),
        ("a name in brackets", "Host: [a.example]\r\n"),
        ("only a port", "Host: :80\r\n"),
        ("a letter beyond ASCII", "Host: caf\u{e9}.example\r\n"),
        ("a question mark", "Host: a.example?x\r\n"),
        ("a fragment", "Host: a.example#x\r\n"),
    ];
    each(rows, move |fields| async move {
        let site = Origin::answering(OK).await;
        let bytes = format!("GET http://SITE/x HTTP/1.1\r\n{fields}\r\n{FOLLOWING}");
        let answer = exchange(proxy, addressed(bytes.as_bytes(), site.address())).await;
        check(statuses(&answer) == [400], || answer.clone())?;
        check(site.received().is_empty(), || site.received())
    })
    .await;
}

#[tokio::test]
async fn an_invalid_target_for_a_proxy_is_refused_and_never_passed_on() {
    let member = member().await;
    let proxy = member.proxy();
    let rows = [
        ("origin-form", "GET /x HTTP/1.1"),
        ("an asterisk", "OPTIONS * HTTP/1.1"),
        ("an asterisk for GET", "GET * HTTP/1.1"),
        ("authority-form", "GET SITE HTTP/1.1"),
        ("two slashes", "GET //SITE/x HTTP/1.1"),
        ("user information", "GET http://user:secret@SITE/x HTTP/1.1"),
        ("an empty user", "GET http://@SITE/x HTTP/1.1"),
        ("two at signs", "GET http://a@b@SITE/x HTTP/1.1"),
        ("port 0", "GET http://127.0.0.1:0/x HTTP/1.1"),
        ("port 65536", "GET http://127.0.0.1:65536/x HTTP/1.1"),
        ("a signed port", "GET http://127.0.0.1:-1/x HTTP/1.1"),
        ("ftp", "GET ftp://SITE/x HTTP/1.1"),
        ("file", "GET file:///etc/passwd HTTP/1.1"),
        ("no host", "GET http:///x HTTP/1.1"),
        ("no host but a port", "GET http://:80/x HTTP/1.1"),
        ("one slash", "GET http:/SITE/x HTTP/1.1"),
        ("backslashes", "GET http:\\\\SITE\\x HTTP/1.1"),
        ("ws", "GET ws://SITE/x HTTP/1.1"),
        ("an encoded host", "GET http://%31%32%37.0.0.1/x HTTP/1.1"),
    ];
    each(rows, move |line| async move {
        let site = Origin::answering(OK).await;
        let bytes = addressed(format!("{line}\r\nHost: SITE\r\n\r\n").as_bytes(), site.address());
        let answer = ask(proxy, bytes).await;
        check((400..500).contains(&answer.status()), || answer.head.clone())?;
        check(answer.field("proxy-status").is_some(), || answer.head.clone())?;
        check(!answer.text().contains("secret"), || answer.text())?;
        check(site.received().is_empty(), || site.received())
    })
    .await;
    assert!(!member.log().contains("secret"), "credentials stay out of the log");
}

#[tokio::test]
async fn a_fragment_stays_with_the_client() {
    let member = member().await;
    let site = Origin::answering(OK).await;
    let bytes = get("").replace("/x ", "/x?a=b#fragment ");
    let answer = exchange(member.proxy(), addressed(bytes.as_bytes(), site.address())).await;
    assert!(matches!(statuses(&answer)[..], [200 | 400]), "{answer}");
    assert!(!site.received().contains("fragment"), "{}", site.received());
}

#[tokio::test]
async fn options_and_trace_count_down_to_the_proxy() {
    let member = member().await;
    let proxy = member.proxy();
    let rows = [
        ("for the whole site", ("OPTIONS http://SITE", "", Some("OPTIONS * HTTP/1.1"))),
        ("for its root", ("OPTIONS http://SITE/", "", Some("OPTIONS / HTTP/1.1"))),
        (
            "with forwards left",
            ("OPTIONS http://SITE/x", "Max-Forwards: 5\r\n", Some("OPTIONS /x HTTP/1.1")),
        ),
        ("with none left", ("OPTIONS http://SITE/x", "Max-Forwards: 0\r\n", None)),
        (
            "a GET does not count",
            ("GET http://SITE/x", "Max-Forwards: 0\r\n", Some("GET /x HTTP/1.1")),
        ),
    ];
    each(rows, move |(start, fields, line)| async move {
        let site = Origin::answering(OK).await;
        let bytes = format!("{start} HTTP/1.1\r\nHost: SITE\r\n{fields}\r\n");
        let answer = ask(proxy, addressed(bytes.as_bytes(), site.address())).await;
        check(answer.status() == 200, || answer.head.clone())?;
        let seen = site.received();
        match line {
            None => check(seen.is_empty() && answer.field("allow").is_some(), || {
                format!("{} {seen}", answer.head)
            }),
            Some(line) => {
                check(seen.starts_with(line), || seen.clone())?;
                let left = field(&seen, "max-forwards");
                check(left.is_none_or(|left| left == "4" || start.starts_with("GET")), || {
                    seen.clone()
                })
            }
        }
    })
    .await;
    let trace = "TRACE http://SITE/x HTTP/1.1\r\nHost: SITE\r\nAuthorization: secret\r\nCookie: secret\r\n\r\n";
    for fields in ["", "Max-Forwards: 0\r\n", "Max-Forwards: 3\r\n"] {
        let site = Origin::answering(OK).await;
        let bytes = trace.replace("Host", &format!("{fields}Host"));
        let answer = ask(proxy, addressed(bytes.as_bytes(), site.address())).await;
        assert_eq!(answer.status(), 405, "{}", answer.head);
        assert!(answer.field("allow").is_some_and(|allow| !allow.contains("TRACE")));
        assert!(!format!("{}{}", answer.head, answer.text()).contains("secret"));
        assert_eq!(site.received(), "");
    }
}

#[tokio::test]
async fn unknown_methods_pass_unchanged() {
    let member = member().await;
    for method in ["QUERY", "PROPFIND", "get", "M-SEARCH", "X!#$%&'*+-.^_`|~9"] {
        let request = get("").replace("GET", method);
        let seen = seen(member.proxy(), request.as_bytes()).await.expect("it is served");
        assert!(seen.starts_with(&format!("{method} /x HTTP/1.1\r\n")), "{seen}");
    }
}

#[tokio::test]
async fn fields_for_the_proxy_do_not_reach_the_site() {
    let member = member().await;
    let request = "GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\nConnection: X-One, close\r\nConnection: keep-alive , x-two,,\r\n\
        X-One: 1\r\nX-Two: 2\r\nX-Two: 3\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\
        Trailer: X-T\r\nProxy-Authorization: Basic eDp5\r\nProxy-Authenticate: Basic\r\nTidegate-Rule: x\r\n\
        Prefer: wait=9, return=minimal\r\nX-Kept: yes\r\n\r\n";
    let seen = seen(member.proxy(), request.as_bytes()).await.expect("it is served").to_lowercase();
    for gone in [
        "x-one",
        "x-two",
        "keep-alive",
        "proxy-",
        "te:",
        "trailer",
        "tidegate-rule",
        "wait=9",
        "eDp5",
        "connection:",
    ] {
        assert!(!seen.contains(&gone.to_lowercase()), "{gone} is in {seen}");
    }
    assert!(seen.contains("x-kept: yes") && seen.contains("return=minimal"), "{seen}");
    for added in ["x-forwarded", "forwarded:", "x-real-ip", "client-ip", "x-proxy"] {
        assert!(!seen.contains(added), "{added} is in {seen}");
    }
}

#[tokio::test]
async fn a_connection_field_cannot_take_a_message_apart() {
    let member = member().await;
    let proxy = member.proxy();
    let rows = [
        "Connection",
        "Host",
        "Content-Length",
        "Authorization",
        "Transfer-Encoding",
        "Cookie",
        "Via",
        "Content-Type",
    ];
    each(rows.map(|named| (named, named)), move |named| async move {
        let request = format!(
            "POST http://SITE/x HTTP/1.1\r\nHost: SITE\r\nConnection: close, {named}\r\nAuthorization: a\r\nCookie: c\r\n\
             Content-Type: t\r\nContent-Length: 5\r\n\r\nhello"
        );
        let seen = seen(proxy, request.as_bytes()).await?;
        let whole = ["Host: SITE", "Authorization: a", "Cookie: c", "Content-Type: t", "Content-Length: 5", "\r\n\r\nhello"];
        check(whole.iter().all(|part| seen.contains(part)), || seen.clone())
    })
    .await;
}

#[tokio::test]
async fn via_grows_by_one_entry_and_a_request_that_was_here_is_a_loop() {
    let member = member().await;
    let first =
        seen(member.proxy(), get("Via: 1.0 one, 1.1 two (x)\r\nVia: 1.1 three\r\n").as_bytes())
            .await;
    let first = first.expect("it is served");
    let entries = first.lines().filter_map(|line| line.strip_prefix("Via: ")).collect::<Vec<_>>();
    assert_eq!(entries[..2], ["1.0 one, 1.1 two (x)", "1.1 three"], "{first}");
    let own = entries[2];
    assert!(own.starts_with("1.1 tidegate") && entries.len() == 3, "{first}");
    let old = "GET http://SITE/x HTTP/1.0\r\nHost: SITE\r\n\r\n";
    let old = seen(member.proxy(), old.as_bytes()).await.expect("it is served");
    assert!(field(&old, "via").is_some_and(|via| via.starts_with("1.0 tidegate")), "{old}");
    let (_, name) = own.split_once(' ').expect("a version and a name");
    for again in [
        own.to_owned(),
        format!("1.1 other, {own}"),
        format!("1.0 {name}"),
        format!("HTTP/1.1 {name} (comment)"),
        format!("1.1 other,{own},1.1 more"),
        format!("{}{own}", "1.1 x,".repeat(80)),
    ] {
        let site = Origin::answering(OK).await;
        let bytes = get(&format!("Via: {again}\r\n"));
        let answer = ask(member.proxy(), addressed(bytes.as_bytes(), site.address())).await;
        assert_eq!(answer.status(), 508, "{again}: {}", answer.head);
        let status = answer.field("proxy-status");
        assert!(status.is_some_and(|status| status.contains("proxy_loop_detected")), "{status:?}");
        assert_eq!(site.received(), "");
    }
}

#[tokio::test]
async fn fields_pass_in_their_order_with_every_byte() {
    let member = member().await;
    let fields = b"User-Agent: a/1\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\nX-Latin: caf\xe9\xff\x80\r\n\
        Accept-Language: de\r\nX-Same: 1\r\nCookie: a=b; c=d\r\nReferer: http://a/?b=c\r\nX-Empty:\r\nX-Quote: \"a\\\"b\"\r\n";
    let site = Origin::answering(OK).await;
    let bytes = [
        &b"GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\n"[..],
        fields,
        b"\r\n",
    ]
    .concat();
    let answer = exchange(member.proxy(), addressed(&bytes, site.address())).await;
    assert_eq!(statuses(&answer), [200], "{answer}");
    let expected = String::from_utf8_lossy(fields);
    let seen = site.received();
    let names = |text: &str| {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs
            .map(|(name, value)| format!("{}:{}", name.to_lowercase(), value.trim()))
            .collect::<Vec<_>>()
    };
    let (expected, seen) = (names(&expected), names(&seen));
    assert_eq!(seen[1..=expected.len()], expected, "behind Host, before Via");
}

#[tokio::test]
async fn an_old_client_gets_an_old_answer_and_its_site_a_new_request() {
    let member = member().await;
    let answer = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\
        Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let site = Origin::answering(answer).await;
    let bytes = addressed(b"GET http://SITE/x HTTP/1.0\r\n\r\n", site.address());
    let answer = exchange(member.proxy(), bytes).await;
    assert_eq!(statuses(&answer), [200], "no interim answer: {answer}");
    assert!(!answer.to_lowercase().contains("transfer-encoding"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhi"), "{answer}");
    let seen = site.received();
    assert!(seen.starts_with("GET /x HTTP/1.1\r\n"), "{seen}");
    assert_eq!(field(&seen, "host"), Some(&*site.address().to_string()));
    let site = Origin::answering(OK).await;
    let mut client = Client::connect(member.proxy()).await;
    for _ in 0..2 {
        let bytes = b"GET http://SITE/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        client.send(addressed(bytes, site.address())).await;
        let answer = client.answer().await;
        let connection = answer.field("connection").unwrap_or_default().to_lowercase();
        assert_eq!((answer.status(), &*connection), (200, "keep-alive"), "{}", answer.head);
    }
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_their_order_and_close_ends_them() {
    let member = member().await;
    let site = Origin::scripted(|_, request| {
        let path = request.split(' ').nth(1).unwrap_or("").to_owned();
        Reply::whole(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()))
    })
    .await;
    let one = |n: usize, fields: &str| {
        format!("GET http://SITE/{n} HTTP/1.1\r\nHost: SITE\r\n{fields}\r\n")
    };
    let mut all = String::from("\r\n");
    for n in 0..10 {
        all += &one(n, "");
    }
    all += "POST http://SITE/10 HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    all += &one(11, "Connection: Close\r\n");
    all += FOLLOWING;
    let answers = exchange(member.proxy(), addressed(all.as_bytes(), site.address())).await;
    assert_eq!(statuses(&answers), [200; 12], "{answers}");
    let order = (0..12).map(|n| answers.find(&format!("\r\n\r\n/{n}"))).collect::<Vec<_>>();
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{answers}");
    assert!(!site.received().contains("following"), "what stands behind `close` is not served");
}
