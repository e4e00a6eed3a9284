//! Tests of what reaches hyper, however it is split into reads, and of whole exchanges with hyper.
#![allow(clippy::unwrap_used)]

mod exchange;
mod samples;

use std::collections::VecDeque;

use tokio::io::AsyncReadExt as _;

use self::samples::{BAD_CHUNKS, BAD_FIELDS, BAD_HEADS, BAD_HOSTS, BAD_LINES};
use super::*;

const LIMITS: Limits = Limits { bytes: 64 * 1024, fields: 100 };

/// Responds with the status only.
#[derive(Debug)]
struct Status;

impl Refuse for Status {
    fn refuse(&mut self, violation: Violation, _: bool) -> Bytes {
        let (status, reason) = violation.status();
        format!(
            "HTTP/1.1 {status} {reason}
Content-Length: 0

"
        )
        .into()
    }
}

/// A socket that delivers exactly these reads, then the end of the stream, and records what is
/// written.
#[derive(Debug)]
struct Pieces {
    reads: VecDeque<Vec<u8>>,
    written: Vec<u8>,
}

impl AsyncRead for Pieces {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(mut piece) = this.reads.pop_front() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                this.reads.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().written.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The result: the bytes that were passed to hyper, and the status of the refusal.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    passed: String,
    refused: Option<u16>,
}

async fn outcome_of(pieces: impl IntoIterator<Item = &[u8]>, buffer: usize) -> Outcome {
    let reads = pieces.into_iter().filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect();
    let (mut connection, handle) =
        Connection::new(Pieces { reads, written: vec![] }, LIMITS, Status);
    for _ in 0..1000 {
        drop(handle.answering());
    }
    let mut passed = Vec::new();
    let mut buf = vec![0; buffer];
    loop {
        match connection.read(&mut buf).await.unwrap() {
            0 => break,
            length => passed.extend_from_slice(&buf[..length]),
        }
    }
    let answer = String::from_utf8(connection.io.written).unwrap();
    let refused = answer.get(9..12).map(|status| status.parse().unwrap());
    Outcome { passed: passed.escape_ascii().to_string(), refused }
}

async fn whole(input: &[u8]) -> Outcome {
    outcome_of([input], 64 * 1024).await
}

fn get(fields: &str) -> Vec<u8> {
    format!("GET http://h/ HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
}

fn post(fields: &str, body: &str) -> Vec<u8> {
    format!("POST http://h/ HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}").into_bytes()
}

fn chunked(body: &str) -> Vec<u8> {
    post("Transfer-Encoding: chunked\r\n", body)
}

/// Requests that pass unchanged.
fn valid() -> Vec<Vec<u8>> {
    let mut valid = vec![
        get(""),
        get("Accept: */*\r\nX-Empty:\r\nX-Tab:\ta\tb \r\nX-High: \u{e9}\r\n"),
        get("Content-Length: 0\r\n"),
        b"\r\n\r\nGET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        b"GET http://h/ HTTP/1.0\r\n\r\n".to_vec(),
        b"PURGE http://h:8080/a//..%2f;b?c={} HTTP/1.1\r\nhOST: [::1]:80\r\n\r\n".to_vec(),
        b"OPTIONS http://h/ HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        post("Content-Length: 5\r\n", "hello"),
        post("Content-Length: 5\r\n", "GET /"),
        chunked("5\r\nhello\r\n0\r\n\r\n"),
        chunked("5;ext=\"q\"\r\nhello\r\n00a\r\n0123456789\r\n0\r\nTrailer: x\r\nOther:\r\n\r\n"),
        post("transfer-encoding:  Chunked \r\n", "0\r\n\r\n"),
    ];
    valid.push([post("Content-Length: 5\r\n", "hello"), get(""), get("")].concat());
    valid.push([chunked("1\r\na\r\n0\r\n\r\n"), get("")].concat());
    valid
}

/// Requests that are refused, with the status. No part of their heads passes.
fn bad_heads() -> Vec<(u16, Vec<u8>)> {
    let line = |line: &&str| (400, format!("{line}\r\nHost: h\r\n\r\n").into_bytes());
    let host = |host: &&str| (400, format!("GET / HTTP/1.1\r\n{host}\r\n").into_bytes());
    let fields = |fields: &&str| (400, post(fields, "5\r\nhello\r\n0\r\n\r\n"));
    let whole = |(status, head): &(u16, &str)| (*status, head.as_bytes().to_vec());
    let lines = BAD_LINES.iter().map(line);
    let hosts = BAD_HOSTS.iter().map(host);
    let bad = lines.chain(hosts).chain(BAD_FIELDS.iter().map(fields));
    bad.chain(BAD_HEADS.iter().map(whole)).collect()
}

/// Splits `input` at random; the same seed splits the same way.
fn cut<'a>(input: &'a [u8], random: &mut fastrand::Rng) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(random.usize(1..=rest.len().min(40)));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[tokio::test(start_paused = true)]
async fn well_formed_requests_pass_unchanged() {
    for input in valid() {
        let passed = input.escape_ascii().to_string();
        assert_eq!(whole(&input).await, Outcome { passed, refused: None });
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_heads_are_answered_and_nothing_of_them_passes() {
    for (status, input) in bad_heads() {
        let after = [input.clone(), get("")].concat();
        let expected = Outcome { passed: String::new(), refused: Some(status) };
        assert_eq!(whole(&after).await, expected, "{}", input.escape_ascii());
        let before = [get(""), after].concat();
        let passed = get("").escape_ascii().to_string();
        let expected = Outcome { passed, refused: Some(status) };
        assert_eq!(whole(&before).await, expected, "{}", input.escape_ascii());
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_chunks_end_the_body_before_the_first_bad_byte() {
    for (passes, body) in BAD_CHUNKS {
        let input = chunked(body);
        let passed = chunked(passes).escape_ascii().to_string();
        let expected = Outcome { passed, refused: Some(400) };
        assert_eq!(whole(&input).await, expected, "{}", input.escape_ascii());
    }
}

#[tokio::test(start_paused = true)]
async fn an_options_request_for_the_whole_site_is_spelled_so_that_it_stays_one() {
    let input = b"OPTIONS http://h:80 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2);
    let expected = input.escape_ascii().to_string().replace("h:80 ", "h:80? ");
    assert_eq!(whole(&input).await, Outcome { passed: expected, refused: None });
}

#[tokio::test(start_paused = true)]
async fn oversized_parts_are_refused_by_name() {
    let long = |length: usize| "a".repeat(length);
    for (status, input) in [
        (414, format!("GET http://h/{} HTTP/1.1\r\nHost: h\r\n\r\n", long(17 * 1024)).into_bytes()),
        (414, long(200 * 1024).into_bytes()),
        (431, get(&format!("A: {}\r\n", long(64 * 1024)))),
        (431, get(&"A: b\r\n".repeat(100))),
        (431, get(&format!("A: {}\r\n", long(2000)).repeat(40))),
        (431, [get(""), get(&format!("A: {}", long(100_000)))].concat()),
    ] {
        let whole = whole(&input).await;
        assert_eq!(whole.refused, Some(status), "{} bytes", input.len());
        assert_eq!(outcome_of(input.chunks(1000), 8192).await, whole);
    }
    let fits = get(&format!("A: {}\r\n", long(60 * 1024)));
    assert_eq!(outcome_of(fits.chunks(1460), 8192).await.refused, None);
    let extension = format!("1;{}\r\na\r\n", long(8 * 1024)).repeat(3);
    assert_eq!(whole(&chunked(&extension)).await.refused, Some(400));
    let trailers = format!("0\r\n{}\r\n", format!("A: {}\r\n", long(1000)).repeat(17));
    assert_eq!(whole(&chunked(&trailers)).await.refused, Some(431));
}

#[tokio::test(start_paused = true)]
async fn the_outcome_does_not_depend_on_how_the_bytes_are_cut_into_reads() {
    let mut random = fastrand::Rng::with_seed(9112);
    let chunks = BAD_CHUNKS.iter().map(|(_, body)| chunked(body));
    let bad = bad_heads().into_iter().map(|(_, input)| input);
    for input in valid().into_iter().chain(bad).chain(chunks) {
        let input = [get(""), input, get("")].concat();
        let expected = whole(&input).await;
        for at in 0..input.len() {
            let (first, second) = input.split_at(at);
            assert_eq!(outcome_of([first, second], 8192).await, expected, "cut at {at}");
        }
        assert_eq!(outcome_of(input.chunks(1), 8192).await, expected);
        assert_eq!(outcome_of([&input[..]], 1).await, expected);
        for _ in 0..5 {
            let pieces = cut(&input, &mut random);
            assert_eq!(outcome_of(pieces, random.usize(1..100)).await, expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn mutated_requests_cause_no_panic_and_only_sent_bytes_pass() {
    let seed = 20_261_120;
    let mut random = fastrand::Rng::with_seed(seed);
    let seeds: Vec<_> =
        valid().into_iter().chain(bad_heads().into_iter().map(|(_, input)| input)).collect();
    for round in 0..5000 {
        let mut input = seeds[random.usize(..seeds.len())].clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..input.len());
            match random.u8(..4) {
                0 => input[at] = random.u8(..),
                1 => input.insert(at, *random.choice(b"\r\n \t:;,0\0A/").unwrap()),
                2 => drop(input.remove(at)),
                _ => input.extend_from_slice(&seeds[random.usize(..seeds.len())]),
            }
            if input.is_empty() {
                input.push(b'\r');
            }
        }
        let expected = whole(&input).await;
        let cut = outcome_of(cut(&input, &mut random), 64).await;
        assert_eq!(cut, expected, "seed {seed}, round {round}");
        let sent = input.escape_ascii().to_string();
        let passed = expected.passed.replace("? HTTP", " HTTP");
        assert!(sent.replace("? HTTP", " HTTP").starts_with(&passed), "seed {seed}, round {round}");
    }
}
