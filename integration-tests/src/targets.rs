//! Every parser of bytes from outside, behind a function that accepts any bytes. It must neither
//! panic nor break the properties that are checked here.
//!
//! `tests/fuzz.rs` runs them with seeds and random changes; `fuzz/` uses libFuzzer. That workspace
//! also uses this file as its library, so it must not depend on this crate.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

#[path = "targets/connection.rs"]
mod connection;
#[path = "targets/message.rs"]
mod message;
#[path = "targets/store.rs"]
mod store;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use tidegate::{
    classify::{
        BodyEnd, Classifier, Head, MAX_RETRY_AFTER, Reading, ScanLimits, retry_after,
        verdict::Verdict,
    },
    config,
    http1::{Connection, Limits, Refuse, Violation},
    proxy::auth::Authenticator,
    rules::{normalise, secret::Secret, settings::Auth},
    target::{Host, Target, glob_matches},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// A function that accepts any bytes.
pub type Feed = fn(&[u8]);

/// Every target with its name.
pub const ALL: [(&str, Feed); 8] = [
    ("rule_file", rule_file),
    ("classifier", classifier),
    ("request_target", request_target),
    ("fields", fields),
    ("http1", http1),
    ("path", path),
    ("connection", connection::connection),
    ("store", store::store),
];

/// A rule file is accepted, or refused with a reason.
pub fn rule_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let env = |name: &str| (name == "NUMBER").then(|| "5".to_owned());
    if let Err(problems) = config::parse(text, "rules.yaml", &env) {
        assert!(!problems.to_string().trim().is_empty(), "refused without a reason");
    }
}

/// A response: `status`, header fields, an empty line, the body. Its verdict does not depend on how
/// the body is split.
pub fn classifier(data: &[u8]) {
    let (head, body) = split(data);
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.trim().parse::<u16>().ok());
    let Some(status) = status.and_then(|code| StatusCode::from_u16(code).ok()) else { return };
    let headers = read_fields(lines);
    let whole = verdict(status, &headers, &[body]);
    let pieces: Vec<&[u8]> = body.chunks(7).collect();
    assert_eq!(verdict(status, &headers, &pieces), whole, "the verdict depends on the pieces");
}

fn verdict(status: StatusCode, headers: &HeaderMap, pieces: &[&[u8]]) -> Verdict {
    static TARGET: OnceLock<Target> = OnceLock::new();
    let target =
        TARGET.get_or_init(|| Target::of_url("https://shop.example/item").expect("this is a URL"));
    let head = Head { method: &Method::GET, target, status, headers };
    let limits = ScanLimits { bytes: 16 << 10, error_bytes: 128 << 10 };
    match Classifier::builtin().read(head, limits) {
        Reading::Judged(judgement) => judgement.verdict,
        Reading::Scan(mut scan) => {
            for piece in pieces {
                if !scan.push(piece) {
                    return scan.finish(BodyEnd::Open).verdict;
                }
            }
            scan.finish(BodyEnd::Complete).verdict
        }
    }
}

/// The method and target of a request line. An accepted target has one spelling, which parses to
/// the same target.
pub fn request_target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((method, uri)) = text.trim_end_matches(['\r', '\n']).split_once(' ') else { return };
    let (Ok(method), Ok(uri)) = (method.parse::<Method>(), uri.parse::<Uri>()) else { return };
    let Ok(target) = Target::parse(&method, &uri) else { return };
    assert_ne!(target.port, 0, "{text:?}");
    if let Host::Name(name) = &target.host {
        let usual = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
        assert!(name.bytes().all(usual) && !name.ends_with('.'), "{text:?}: {name}");
        assert!(name.parse::<IpAddr>().is_err(), "{text:?}: an address passes as a name");
    }
    if let Host::Ip(IpAddr::V6(v6)) = &target.host {
        assert!(v6.to_ipv4_mapped().is_none(), "{text:?}: a mapped address keeps its disguise");
    }
    let spelt = if method == Method::CONNECT {
        format!("{}:{}", target.host, target.port)
    } else {
        if &*target.path == "*" {
            return;
        }
        format!("{}://{}{}", target.scheme.as_str(), target.authority(), target.path)
    };
    let again = spelt.parse().map(|uri| Target::parse(&method, &uri));
    assert_eq!(again.ok(), Some(Ok(target)), "{text:?} is read as {spelt}");
}

/// A path, and a pattern on the next line. A normalised path is stable and stays in the same
/// folder.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, pattern) = text.split_once('\n').unwrap_or((text, "*"));
    let normal = normalise(path);
    assert_eq!(normalise(&normal), normal, "{path:?} has several normal forms");
    let segments = normal.split('?').next().unwrap_or_default();
    if path.starts_with('/') {
        let bare = ["//", "/./", "/../", "%61", "%2e", "%2E", "%7e", "%7E"];
        assert!(!bare.iter().any(|one| segments.contains(one)), "{path:?} is {normal:?}");
        let ends = ["/.", "/.."].iter().any(|end| segments.ends_with(end));
        assert!(segments.starts_with('/') && !ends, "{path:?} is {normal:?}");
    }
    let (pattern, spelt) = (normalise(pattern), path.replacen("/a", "/./%61", 1));
    if path.starts_with('/') && !path.split('?').next().unwrap_or_default().contains('%') {
        let alike = glob_matches(&pattern, &normal) == glob_matches(&pattern, &normalise(&spelt));
        assert!(alike, "{path:?} and {spelt:?} differ for {pattern:?}");
    }
}

/// Header fields with a meaning: credentials, `Retry-After`, `Host`.
pub fn fields(data: &[u8]) {
    static DOOR: OnceLock<Authenticator> = OnceLock::new();
    let door = DOOR.get_or_init(|| {
        let users = vec![(Arc::from("crawler"), Secret::new("open-sesame"))];
        Authenticator::new(&Auth { users, networks: Vec::new(), none: false })
    });
    let (head, _) = split(data);
    let headers = read_fields(head.lines());
    let wait = retry_after(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    assert!(wait.is_none_or(|wait| wait > Duration::ZERO && wait <= MAX_RETRY_AFTER), "{wait:?}");
    if door.check(&headers, Ipv4Addr::LOCALHOST.into()).is_ok() {
        // base64 of `crawler:open-sesame`, the only valid credentials.
        let given = headers.get("proxy-authorization").map(HeaderValue::as_bytes);
        let right = b"Y3Jhd2xlcjpvcGVuLXNlc2FtZQ";
        let is_right = given.is_some_and(|given| given.windows(right.len()).any(|w| w == right));
        assert!(is_right, "{given:?} is let in");
    }
    if let (Ok(target), Some(host)) = (Target::of_url("http://site.example/"), headers.get("host"))
        && host.to_str().is_ok_and(|host| target.is_named_by(host))
    {
        let host = host.to_str().unwrap_or_default().to_ascii_lowercase();
        assert!(host.starts_with("site.example"), "{host} is taken for site.example");
    }
}

/// The bytes of a client's connection. Accepted bytes pass unchanged, however the reads are split.
pub fn http1(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime starts");
    let (passed, status) = runtime.block_on(through(&[data]));
    let sent = data.escape_ascii().to_string().replace("? HTTP", " HTTP");
    let spelt = passed.escape_ascii().to_string().replace("? HTTP", " HTTP");
    assert!(sent.starts_with(&spelt), "what passes was not sent: {spelt}");
    let pieces: Vec<&[u8]> = data.chunks(3).collect();
    let cut = runtime.block_on(through(&pieces));
    assert_eq!(cut, (passed, status), "it depends on the reads: {}", data.escape_ascii());
}

/// The bytes that the strict reader passes on, and the status with which it refuses the rest.
async fn through(reads: &[&[u8]]) -> (Vec<u8>, Option<String>) {
    const LIMITS: Limits = Limits { bytes: 64 << 10, fields: 100 };
    let reads = reads.iter().filter(|read| !read.is_empty()).map(|read| read.to_vec()).collect();
    let written = Arc::default();
    let socket = Reads { reads, written: Arc::clone(&written) };
    let (mut connection, handle) = Connection::new(socket, LIMITS, Status);
    for _ in 0..1_000 {
        drop(handle.answering());
    }
    let mut passed = Vec::new();
    // A read error ends the connection like its end does.
    while connection.read_buf(&mut passed).await.is_ok_and(|read| read > 0) {}
    let answer = String::from_utf8_lossy(&written.lock()).into_owned();
    (passed, answer.get(9..12).map(str::to_owned))
}

/// Refuses with the status only.
struct Status;

impl Refuse for Status {
    fn refuse(&mut self, violation: Violation, _: bool) -> bytes::Bytes {
        let (status, reason) = violation.status();
        format!("HTTP/1.1 {status} {reason}\r\n\r\n").into()
    }
}

/// A socket that delivers exactly these reads, then the end, and records what is written.
struct Reads {
    reads: VecDeque<Vec<u8>>,
    written: Arc<parking_lot::Mutex<Vec<u8>>>,
}

impl AsyncRead for Reads {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.reads.pop_front() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.reads.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Reads {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.lock().extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Head and body, separated by the first empty line.
fn split(data: &[u8]) -> (String, &[u8]) {
    let end = data.windows(2).position(|two| two == b"\n\n").unwrap_or(data.len());
    let body = data.get(end + 2..).unwrap_or_default();
    (String::from_utf8_lossy(&data[..end]).into_owned(), body)
}

/// Lines of `name: value`; invalid ones are skipped.
fn read_fields<'a>(lines: impl Iterator<Item = &'a str>) -> HeaderMap {
    let field = |line: &'a str| {
        let (name, value) = line.split_once(':')?;
        let name = name.trim().parse::<HeaderName>().ok()?;
        Some((name, HeaderValue::from_bytes(value.trim().as_bytes()).ok()?))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in lines.take(100).filter_map(field) {
        headers.append(name, value);
    }
    headers
}
