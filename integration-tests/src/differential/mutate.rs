//! Nearly valid requests: templates of every framing, with lines that two parsers may read
//! differently.

/// Requests; `SITE` stands for the site.
const TEMPLATES: [&str; 8] = [
    "GET http://SITE/a?b=c HTTP/1.1\r\nHost: SITE\r\nAccept: */*\r\n\r\n",
    "GET http://SITE HTTP/1.0\r\nUser-Agent: x\r\n\r\n",
    "POST http://SITE/p HTTP/1.1\r\nHost: SITE\r\nContent-Length: 5\r\n\r\nhello",
    "POST http://SITE/c HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "PUT http://SITE/t HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n\
     5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nx: y\r\n\r\n",
    "HEAD http://SITE/h/../i//j HTTP/1.1\r\nHost: SITE\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
    "DELETE http://SITE/d%2f%2e HTTP/1.1\r\nHost: SITE\r\nContent-Length: 0\r\n\r\n",
    "GET http://SITE/g HTTP/1.1\r\nHost: SITE\r\nContent-Length: 44\r\n\r\n\
     GET /smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n",
];

/// Lines that are inserted among the fields.
const LINES: [&str; 32] = [
    "Content-Length: 5",
    "Content-Length: 6",
    "Content-Length: 0",
    "Content-Length: 05",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length:\t5",
    "Content-Length : 5",
    "Content_Length: 99",
    "Content-Length\u{b}: 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: x, chunked",
    "Transfer-Encoding:\u{b}chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: \"chunked\"",
    "X: y\r\n Transfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "X: y\nTransfer-Encoding: chunked",
    "Connection: content-length",
    "Connection: transfer-encoding, x",
    "Connection: close, \u{ff}",
    "Host: other.example",
    "Upgrade: h2c",
    "TE: trailers, chunked",
    "Via: 1.1 x",
    ": empty",
    "X:",
];

/// Replacements of text.
const SWAPS: [(&str, &str); 18] = [
    ("\r\n", "\n"),
    ("\r\n", "\r\n\r\n"),
    ("\r\n", "\r\r\n"),
    (": ", ":"),
    (": ", " : "),
    (": ", ":  \t"),
    ("HTTP/1.1", "HTTP/1.0"),
    ("HTTP/1.1", "HTTP/1.1 "),
    ("HTTP/1.1", "HTTP/01.1"),
    ("/", "//"),
    ("?", "??"),
    ("5", "05"),
    ("5", "0000000000000005"),
    ("hello", "hel\r\nlo"),
    ("GET", "get"),
    ("GET", "OPTIONS"),
    ("a", "%61"),
    ("0\r\n\r\n", "0;x=\"\r\n\"\r\n\r\n"),
];

/// A client's bytes: one or two requests with a few changes.
pub(super) fn request(random: &mut fastrand::Rng, site: &str) -> Vec<u8> {
    let mut bytes = TEMPLATES[random.usize(..TEMPLATES.len())].as_bytes().to_vec();
    if random.u8(..4) == 0 {
        bytes.extend_from_slice(TEMPLATES[random.usize(..TEMPLATES.len())].as_bytes());
    }
    for _ in 0..random.usize(..4) {
        change(random, &mut bytes);
    }
    replace(&bytes, b"SITE", site.as_bytes(), |_| true)
}

fn change(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    match random.u8(..8) {
        0..=2 => {
            let ends: Vec<usize> = (0..bytes.len().saturating_sub(1))
                .filter(|at| bytes[*at..].starts_with(b"\r\n"))
                .collect();
            let Some(at) = ends.get(random.usize(..ends.len().max(1))) else { return };
            let line = LINES[random.usize(..LINES.len())];
            bytes.splice(at + 2..at + 2, format!("{line}\r\n").into_bytes());
        }
        3..=5 => {
            let (from, to) = SWAPS[random.usize(..SWAPS.len())];
            let chosen = random.usize(..4);
            *bytes = replace(bytes, from.as_bytes(), to.as_bytes(), |n| n == chosen);
        }
        6 if !bytes.is_empty() => {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        _ => {
            let at = random.usize(..=bytes.len());
            let end = (at + random.usize(..12)).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

/// Replaces those occurrences of `from` whose number is `chosen`.
fn replace(bytes: &[u8], from: &[u8], to: &[u8], chosen: impl Fn(usize) -> bool) -> Vec<u8> {
    let (mut replaced, mut at, mut number) = (Vec::with_capacity(bytes.len()), 0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(from) {
            replaced.extend_from_slice(if chosen(number) { to } else { from });
            (at, number) = (at + from.len(), number + 1);
        } else {
            replaced.push(bytes[at]);
            at += 1;
        }
    }
    replaced
}
