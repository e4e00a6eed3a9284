//! Random bodies: the examples of all signatures, cut, mixed and damaged. Nothing panics, splitting
//! a body does not matter, and the fast path to a verdict (`finish`) agrees with the complete one
//! (`Scan::traced`, which searches for every mark).
//!
//! `MUTATIONS=1000000` runs that many; `SEED=...` continues from the seed of a failure.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tidegate::{
    classify::{
        BodyEnd, Classifier, Head, Reading, Scan, builtin_signatures,
        verdict::{Judgement, Verdict},
    },
    target::Target,
};

use super::{LIMITS, filler, prose};

/// As many as take about a second.
const USUAL: u64 = 1_500;

/// Insertions of a mutation: fragments of HTML, of encodings and of the engine's own limits.
const SCRAPS: [&[u8]; 20] = [
    b"<",
    b">",
    b"</",
    b"<!--",
    b"-->",
    b"<script>",
    b"</script>",
    b"<title>",
    b"</title>",
    b"\"",
    b"'",
    b"&",
    b"&#x",
    b";",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xe6\xbc",
    b"\n  ",
    b"{",
];

pub(crate) fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// The bodies of all examples.
fn bodies() -> Vec<Vec<u8>> {
    let signatures = builtin_signatures();
    let examples = signatures.iter().flat_map(|signature| &signature.expect);
    let body = |text: &str| {
        text.replace("{prose}", &prose(2_400)).replace("{filler}", &filler(3_000)).into_bytes()
    };
    examples.map(|example| body(&example.body)).filter(|body| !body.is_empty()).collect()
}

/// A body made of `bodies`, a few changes away from one of them.
fn mutated(bodies: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut body = random.choice(bodies).unwrap().clone();
    for _ in 0..random.usize(0..6) {
        let at = random.usize(0..=body.len());
        let until = body.len().min(at + random.usize(0..40));
        match random.u8(0..6) {
            0 => drop(body.drain(at..until)),
            1 => body.truncate(at),
            2 => body[at..until].make_ascii_uppercase(),
            3 => body[at..until].iter_mut().for_each(|byte| *byte = random.u8(..)),
            4 => {
                let other = random.choice(bodies).unwrap();
                body.splice(at..at, other.iter().copied());
            }
            _ => {
                let scrap = *random.choice(&SCRAPS).unwrap();
                body.splice(at..at, scrap.iter().copied());
            }
        }
    }
    body
}

/// The head of a response that is scanned.
fn head(random: &mut fastrand::Rng) -> (StatusCode, HeaderMap) {
    let status = random.choice([200, 202, 403, 404, 429, 503]).unwrap();
    let kinds = [
        "text/html",
        "text/html; charset=utf-8",
        "text/html; charset=gbk",
        "text/plain",
        "application/json",
    ];
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(random.choice(kinds).unwrap()));
    if random.bool() {
        headers.insert(header::SERVER, HeaderValue::from_static("cloudflare"));
    }
    (StatusCode::from_u16(status).unwrap(), headers)
}

/// Hands over the body in pieces; whether all of it was wanted.
fn push(scan: &mut Scan, body: &[u8], mut pieces: impl FnMut() -> usize) -> BodyEnd {
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(pieces().min(rest.len()));
        if !scan.push(piece) {
            return BodyEnd::Open;
        }
        rest = after;
    }
    BodyEnd::Complete
}

/// The verdict and its evidence.
fn said(judgement: &Judgement) -> (Verdict, Option<&str>) {
    (judgement.verdict, judgement.evidence.as_ref().map(|evidence| &*evidence.signature))
}

#[test]
fn neither_the_pieces_of_a_body_nor_the_quick_way_change_a_verdict() {
    let (bodies, classifier) = (bodies(), Classifier::builtin());
    let target = Target::of_url("https://site.example/page").unwrap();
    let first = number("SEED", 1);
    let mut blocks = 0;
    for seed in first..first + number("MUTATIONS", USUAL) {
        let mut random = fastrand::Rng::with_seed(seed);
        let body = mutated(&bodies, &mut random);
        let (status, headers) = head(&mut random);
        let head = Head { method: &Method::GET, target: &target, status, headers: &headers };
        let scan = || match classifier.read(head, LIMITS) {
            Reading::Scan(scan) => Some(scan),
            Reading::Judged(_) => None,
        };
        let [Some(mut whole), Some(mut torn), Some(mut last), Some(traced)] =
            [(); 4].map(|()| scan())
        else {
            continue;
        };
        let end = push(&mut whole, &body, || usize::MAX);
        let expected = whole.finish(end);
        push(&mut torn, &body, || random.usize(1..300));
        // How far an ordinary page is read, and so which decoys are seen, may depend on its pieces.
        assert_eq!(said(&torn.finish(end)), said(&expected), "in pieces, SEED={seed}");
        last.push_last(&body);
        assert_eq!(said(&last.finish(end)), said(&expected), "at once, SEED={seed}");
        let mut traced = traced.traced();
        traced.push(&body);
        assert_eq!(traced.finish(end).0, expected, "with a trace, SEED={seed}");
        blocks += u64::from(expected.verdict != Verdict::Ok);
    }
    assert!(blocks > 0, "mutations left no wall recognisable");
}
