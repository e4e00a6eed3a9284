//! HTTP/2 inside an intercepted CONNECT, frame by frame: requests that must not turn into others,
//! and clients that cause useless work.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use integration_tests::{
    client::get_direct,
    member::{Member, RuleFile},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot::{self, error::TryRecvError},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    bench::{Client, SOON, addressed, ask, check, each},
    origin::{OK, Origin},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A field of a request, byte by byte.
type Field = (&'static [u8], &'static [u8]);
type Fields = Vec<Field>;
/// A flood by its name, and whether it must end its connection.
type Flood = (&'static str, (bool, Vec<u8>));

/// A valid request.
const GET: [Field; 4] =
    [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/x"), (b":authority", b"SITE")];
const CONNECT: Field = (b":method", b"CONNECT");
const WEBSOCKET: Field = (b":protocol", b"websocket");

/// One request is sent; all others are held for an hour. Only `/calm` is unlimited.
async fn holding() -> Member {
    let rules = "- {name: calm, match: {hosts: \"*\", paths: /calm}, cooldown: off}\n\
        - {name: held, match: \"*\", intercept: true, rate: 1/h, burst: 1, max_wait: 2h, cooldown: off}";
    Member::start(&RuleFile::new(rules)).await
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Fields in HPACK, each literally and without the table (RFC 7541 section 6.2.2).
fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let text = |text: &[u8]| match u8::try_from(text.len()) {
        Ok(length @ ..127) => [&[length][..], text].concat(),
        _ => {
            let rest = text.len() - 127;
            let more = u8::try_from(rest % 128).expect("seven bits") | 0x80;
            [&[0x7f, more, u8::try_from(rest / 128).expect("short enough")][..], text].concat()
        }
    };
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// An HTTP/2 connection to the proxy, which intercepts it for the site at `origin`.
async fn h2(member: &Member, origin: &Origin) -> TlsStream<TcpStream> {
    let mut client = Client::connect(member.proxy()).await;
    let connect = b"CONNECT SITE HTTP/1.1\r\nHost: SITE\r\n\r\n";
    client.send(addressed(connect, origin.address())).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    let ca = get_direct(member.admin(), "/ca.pem").await;
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(&ca.body).expect("the CA is PEM");
    roots.add(ca).expect("the CA is a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::from(origin.address().ip());
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, client.stream).await.expect("a handshake");
    stream.write_all(PREFACE).await.expect("the proxy reads");
    stream
}

/// The frames of a connection until stream 1 or the connection ends: payloads by kind.
async fn outcome(stream: &mut TlsStream<TcpStream>) -> BTreeMap<u8, Vec<Vec<u8>>> {
    let mut frames = BTreeMap::<u8, Vec<Vec<u8>>>::new();
    let reading = async {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            if stream.read_exact(&mut payload).await.is_err() {
                return;
            }
            let (kind, ends) = (head[3], head[4] & END_STREAM != 0);
            frames.entry(kind).or_default().push(payload);
            if matches!(kind, RST_STREAM | GOAWAY) || ends && matches!(kind, HEADERS | DATA) {
                return;
            }
        }
    };
    timeout(SOON, reading).await.expect("an end comes in time");
    frames
}

/// CONNECTs that are not served.
fn connects() -> Vec<(&'static str, Fields)> {
    let [get, https, path, site] = GET;
    vec![
        (
            "an extended CONNECT for what is no WebSocket",
            vec![CONNECT, https, path, site, (b":protocol", b"connect-udp")],
        ),
        ("an extended CONNECT without a path", vec![CONNECT, https, site, WEBSOCKET]),
        ("an extended CONNECT without a scheme", vec![CONNECT, path, site, WEBSOCKET]),
        (
            "an extended CONNECT to another site",
            vec![CONNECT, https, path, (b":authority", b"other.example"), WEBSOCKET],
        ),
        ("a protocol without CONNECT", vec![get, https, path, site, WEBSOCKET]),
        ("a CONNECT", vec![CONNECT, site]),
    ]
}

#[tokio::test]
async fn a_request_in_frames_that_would_be_another_in_lines_is_refused() {
    let member = Member::start(&RuleFile::one_rule("intercept: true, cooldown: off")).await;
    let member = Arc::new(member);
    let [get, https, path, site] = GET;
    let with =
        |name: &'static [u8], value: &'static [u8]| vec![get, https, path, site, (name, value)];
    let mut rows: Vec<(&str, Fields)> = vec![
        ("a name in capitals", with(b"X-Name", b"v")),
        ("a space in a name", with(b"x name", b"v")),
        ("a colon in a name", with(b"x:name", b"v")),
        ("a CRLF in a name", with(b"x\r\ny", b"v")),
        ("an empty name", with(b"", b"v")),
        ("a CR in a value", with(b"x-name", b"a\rb")),
        ("an LF in a value", with(b"x-name", b"a\nx-other: b")),
        ("a CRLF in a value", with(b"x-name", b"a\r\n\r\nGET /following HTTP/1.1")),
        ("a NUL in a value", with(b"x-name", b"a\0b")),
        ("a field of one hop", with(b"connection", b"x-name")),
        ("a transfer coding", with(b"transfer-encoding", b"chunked")),
        ("an upgrade", with(b"upgrade", b"websocket")),
        ("keep-alive", with(b"keep-alive", b"5")),
        ("proxy-connection", with(b"proxy-connection", b"keep-alive")),
        ("te but trailers", with(b"te", b"gzip")),
        ("a length that is none", with(b"content-length", b"5, 6")),
        ("a pseudo-field that there is not", with(b":other", b"v")),
        ("a pseudo-field of answers", with(b":status", b"200")),
        ("a pseudo-field behind a field", vec![get, https, (b"x-name", b"v"), path, site]),
        ("no method", vec![https, path, site]),
        ("no scheme", vec![get, path, site]),
        ("no path", vec![get, https, site]),
        ("an empty path", vec![get, https, (b":path", b""), site]),
        ("two paths", vec![get, https, path, (b":path", b"/y"), site]),
        ("two methods", vec![get, (b":method", b"POST"), https, path, site]),
        ("a path that begins with no slash", vec![get, https, (b":path", b"x"), site]),
        ("a space in a path", vec![get, https, (b":path", b"/x HTTP/1.1"), site]),
        ("a CRLF in a path", vec![get, https, (b":path", b"/x HTTP/1.1\r\nx: y"), site]),
        ("a space in a method", vec![(b":method", b"GET /y"), https, path, site]),
        ("a CRLF in a method", vec![(b":method", b"GET\r\nx"), https, path, site]),
        ("another scheme", vec![get, (b":scheme", b"http"), path, site]),
        ("a scheme with a CRLF", vec![get, (b":scheme", b"https\r\n"), path, site]),
        ("another authority", vec![get, https, path, (b":authority", b"other.example")]),
        ("user information", vec![get, https, path, (b":authority", b"user@SITE")]),
        ("a CRLF in the authority", vec![get, https, path, (b":authority", b"SITE\r\nx: y")]),
        ("a path in the authority", vec![get, https, path, (b":authority", b"SITE/y")]),
        ("another Host", with(b"host", b"other.example")),
        ("a blank before a value", with(b"x-name", b" v")),
        ("a tab behind a value", with(b"x-name", b"v\t")),
        ("a path of all", vec![get, https, (b":path", b"*"), site]),
        ("raw UTF-8 in a path", vec![get, https, (b":path", "/caf\u{e9}".as_bytes()), site]),
        ("the preface's method", vec![(b":method", b"PRI"), https, path, site]),
    ];
    let many = [&with(b"x", b"v")[..], &[(&b"x"[..], &b"v"[..]); 200]].concat();
    rows.push(("more fields than there may be", many));
    rows.extend(connects());
    each(rows, move |fields| {
        let member = Arc::clone(&member);
        async move {
            let origin = Origin::answering(OK).await;
            let values: Vec<_> =
                fields.iter().map(|(_, value)| addressed(value, origin.address())).collect();
            let fields: Vec<_> =
                fields.iter().zip(&values).map(|((name, _), value)| (*name, &**value)).collect();
            let mut stream = h2(&member, &origin).await;
            let ask = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&fields));
            stream.write_all(&ask).await.map_err(|error| error.to_string())?;
            let frames = outcome(&mut stream).await;
            // A stream error, a connection error, or a refusal by the proxy: 0x88 is `:status` 200
            // (RFC 7541 appendix A).
            let refused = frames.get(&HEADERS).is_none_or(|heads| !heads[0].starts_with(&[0x88]));
            check(refused && !frames.is_empty(), || format!("{frames:02x?}"))?;
            check(origin.connections() == 0, || "the site was connected to".to_owned())
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_of_another_length_than_announced_ends_its_stream() {
    let member = holding().await;
    for (announced, body, last) in
        [("5", "hello world", true), ("50", "hello", true), ("5", "hello world", false)]
    {
        let origin = Origin::answering(OK).await;
        let address = origin.address().to_string();
        let fields: [(&[u8], &[u8]); 5] = [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", b"/x"),
            (b":authority", address.as_bytes()),
            (b"content-length", announced.as_bytes()),
        ];
        let mut stream = h2(&member, &origin).await;
        let head = frame(HEADERS, END_HEADERS, 1, &block(&fields));
        let data = frame(DATA, if last { END_STREAM } else { 0 }, 1, body.as_bytes());
        stream.write_all(&[head, data].concat()).await.expect("the proxy reads");
        let frames = outcome(&mut stream).await;
        assert!(
            frames.contains_key(&RST_STREAM) || frames.contains_key(&GOAWAY),
            "{announced}: {frames:?}"
        );
        assert!(origin.requests().is_empty());
    }
}

#[tokio::test]
async fn streams_are_bounded_and_websockets_over_http2_announced() {
    let member = holding().await;
    let origin = Origin::answering(OK).await;
    let mut stream = h2(&member, &origin).await;
    stream.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).await.expect("the proxy reads");
    let frames = outcome(&mut stream).await;
    let settings = frames[&SETTINGS].concat();
    let settings: Vec<_> = settings
        .chunks(6)
        .map(|setting| (u16::from_be_bytes([setting[0], setting[1]]), &setting[2..]))
        .collect();
    assert!(
        settings.iter().any(|(id, _)| *id == 3),
        "SETTINGS_MAX_CONCURRENT_STREAMS: {settings:?}"
    );
    assert!(
        settings.contains(&(8, &[0, 0, 0, 1])),
        "SETTINGS_ENABLE_CONNECT_PROTOCOL: {settings:?}"
    );
}

const MANY: u32 = 20_000;

fn each_stream(count: u32, make: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|n| make(2 * n + 1)).collect()
}

fn request(method: &'static [u8]) -> Vec<u8> {
    block(&[(b":method", method), (b":scheme", b"https"), (b":path", b"/x")])
}

/// Requests that are taken back, never end, or weigh more than they look.
fn floods_of_requests() -> Vec<Flood> {
    let get = request(b"GET");
    let whole = END_STREAM | END_HEADERS;
    let open = |stream| frame(HEADERS, whole, stream, &get);
    let begun = frame(HEADERS, 0, 1, &get);
    let post = frame(HEADERS, END_HEADERS, 1, &request(b"POST"));
    let resets = each_stream(MANY / 2, |stream| {
        [open(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    let made = each_stream(MANY / 2, |stream| {
        [open(stream), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    });
    let more = frame(CONTINUATION, 0, 1, &block(&[(b"x", &[b'y'; 250])])).repeat(2000);
    let nothing = frame(CONTINUATION, 0, 1, b"").repeat(100_000);
    let empty = frame(DATA, 0, 1, b"").repeat(100_000);
    // Name and value are put into the table once; then each byte expands to nearly 4 KiB.
    let bomb = [&[0x40, 1, b'x', 0x7f, 0x81, 0x1e][..], &[b'y'; 3968], &[0xbe; 12_000]].concat();
    vec![
        ("rapid resets", (true, resets)),
        ("resets that the proxy is made to send", (true, made)),
        ("a head without end", (true, [begun.clone(), more].concat())),
        ("empty continuations", (true, [begun, nothing].concat())),
        ("a head that unpacks to mebibytes", (false, frame(HEADERS, whole, 1, &bomb))),
        ("empty data", (true, [post, empty].concat())),
    ]
}

/// Frames that are about nothing, or that no peer may send.
fn floods_of_control() -> Vec<Flood> {
    let itself = each_stream(MANY, |stream| {
        frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat())
    });
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).repeat(MANY as usize);
    let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(2);
    vec![
        ("streams that depend on themselves", (false, itself)),
        ("pings", (false, frame(PING, 0, 0, &[7; 8]).repeat(MANY as usize))),
        ("settings", (false, settings)),
        ("unknown frames", (false, frame(0xbb, 0, 0, &[0; 100]).repeat(MANY as usize))),
        ("a frame beyond its size", (true, frame(PING, 0, 0, &[0; 20_000]))),
        ("a window beyond its size", (true, window)),
        ("no HTTP/2", (true, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(100))),
    ]
}

/// Another client's requests, one after the other until it is stopped. Returns the number of
/// responses.
async fn served_meanwhile(proxy: SocketAddr, mut stopped: oneshot::Receiver<()>) -> usize {
    let site = Origin::answering(OK).await;
    let get = addressed(b"GET http://SITE/calm HTTP/1.1\r\nHost: SITE\r\n\r\n", site.address());
    let mut served = 0;
    while stopped.try_recv().is_err_and(|error| error == TryRecvError::Empty) {
        assert_eq!(ask(proxy, &get).await.status(), 200, "request {served} during the floods");
        served += 1;
    }
    served
}

#[tokio::test]
async fn floods_of_frames_cost_little_and_end_their_own_connection_at_most() {
    let member = Arc::new(holding().await);
    let origin = Arc::new(Origin::answering(OK).await);
    drop(h2(&member, &origin).await);
    let before = member.resident_bytes();
    let (proxy, site) = (Arc::clone(&member), Arc::clone(&origin));
    let rows = floods_of_requests().into_iter().chain(floods_of_control());
    let (stop, stopped) = oneshot::channel();
    let others = tokio::spawn(served_meanwhile(member.proxy(), stopped));
    each(rows, move |(ends, bytes)| {
        let (member, origin) = (Arc::clone(&proxy), Arc::clone(&site));
        async move {
            let (mut from, mut to) = tokio::io::split(h2(&member, &origin).await);
            let sending = tokio::spawn(async move {
                drop(to.write_all(&bytes).await);
                drop(to.flush().await);
                to
            });
            let mut frames = Vec::new();
            let limit = if ends { SOON } else { Duration::from_secs(2) };
            let ended = timeout(limit, from.read_to_end(&mut frames)).await.is_ok();
            sending.abort();
            check(ended || !ends, || "the connection goes on".to_owned())
        }
    })
    .await;
    drop(stop);
    assert!(others.await.expect("another client is served") > 0, "nobody else was served");
    let growth = member.resident_bytes().saturating_sub(before);
    assert!(growth < 24 << 20, "{} MiB more", growth >> 20);
    let floods = member.metric("tidegate_limit_hits_total", &[("limit", "http2")]).await;
    assert!(floods >= 2.0, "{floods} are counted");
    assert_eq!(origin.requests().len(), 0, "nothing of it reached the site");
    drop(h2(&member, &origin).await);
}
