//! The prefilter misses none of the matches that `Scan::traced` finds, however the strings of
//! signatures are written on a page. The prefilter skips most pages; `Scan::traced` reads all of
//! them.
//!
//! `DISGUISES=1000000` runs that many; `SEED=...` continues from the seed of a failure.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tidegate::{
    classify::{
        BodyEnd, Classifier, Head, Reading, Signature, builtin_signatures, verdict::Verdict,
    },
    target::Target,
};

use super::{LIMITS, filler, mutations::number, prose};

/// As many as take about a second.
const USUAL: u64 = 1_000;

/// Texts that mean a blank.
const BLANKS: [&str; 12] = [
    " ",
    " ",
    "\n    ",
    "\t",
    "&nbsp;",
    "&#32;",
    "\u{a0}",
    "\u{3000}",
    "</b> <b>",
    "<br>",
    "<a title=\"a > b\" href='x'>",
    "<script>if (a < b) {}</script>",
];

/// Texts without a meaning between two letters.
const NOTHINGS: [&str; 8] =
    ["&shy;", "&#173;", "\u{ad}", "\u{200b}", "&zwnj;", "<!-- -->", "<!-->", "<!-- > --!>"];

/// Another way to write a character.
fn disguised(character: char, random: &mut fastrand::Rng) -> String {
    match random.u8(0..6) {
        0 => format!("&#{};", u32::from(character)),
        1 => format!("&#x{:X};", u32::from(character)),
        2 => character.to_uppercase().collect(),
        3 if character == 'k' => "\u{212a}".to_owned(),
        4 => format!("{character}{}", random.choice(NOTHINGS).unwrap()),
        _ => character.to_string(),
    }
}

/// `text` as visible text, with one character in `rare` disguised.
fn visible(text: &str, rare: u32, random: &mut fastrand::Rng) -> String {
    let mut written = String::new();
    for character in text.chars() {
        match character {
            ' ' => written.push_str(random.choice(BLANKS).unwrap()),
            '<' => written.push_str("&lt;"),
            _ if random.u32(0..rare) == 0 => written.push_str(&disguised(character, random)),
            _ => written.push(character),
        }
    }
    written
}

/// A page with all strings that `signature` requires.
fn page(signature: &Signature, random: &mut fastrand::Rng) -> String {
    let rare = random.choice([3, 20, 1_000]).unwrap();
    let mut page = format!("<!DOCTYPE html><html><head>{}", filler(random.usize(500..3_000)));
    if let Some(title) = random.choice(&signature.title) {
        let blank = random.choice([" ", "\n ", "&#32;", "\u{a0}"]).unwrap();
        let title: String = title
            .replace('*', "site.example")
            .chars()
            .map(|c| match c {
                ' ' => blank.to_owned(),
                _ if random.u32(0..rare) == 0 => disguised(c, random),
                _ => c.to_string(),
            })
            .collect();
        let tag = random.choice(["<title>", "<TITLE>", "<title lang=\"a > b\">"]).unwrap();
        page.push_str(&format!("{tag}{title}</title>"));
    }
    let markers = signature.body.iter().chain(random.choice(&signature.any));
    for marker in markers {
        match random.u8(0..3) {
            0 => page.push_str(&visible(marker, rare, random)),
            1 => page.push_str(&marker.to_ascii_uppercase()),
            _ => page.push_str(&format!("<script>{marker}</script>")),
        }
        page.push('\n');
    }
    if let Some(text) = random.choice(&signature.text) {
        let (before, after) = (random.choice(BLANKS).unwrap(), random.choice(["", ".", "</p>"]));
        page.push_str(&format!("{before}{}{}", visible(text, rare, random), after.unwrap()));
    }
    if random.u8(0..8) == 0 {
        page.push_str(&prose(1_600));
    }
    page
}

#[test]
fn no_way_to_write_a_mark_hides_it_from_the_quick_way() {
    let (signatures, classifier) = (builtin_signatures(), Classifier::builtin());
    let signatures: Vec<&Signature> = signatures.iter().filter(|s| !s.is_head_only()).collect();
    let target = Target::of_url("https://site.example/page").unwrap();
    let (first, count) = (number("SEED", 1), number("DISGUISES", USUAL));
    let mut found = 0;
    for seed in first..first + count {
        let mut random = fastrand::Rng::with_seed(seed);
        let page = page(random.choice(&signatures).unwrap(), &mut random);
        let kind = random.choice(["text/html", "text/html; charset=utf-8"]).unwrap();
        let headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let status = StatusCode::from_u16(random.choice([200, 200, 404, 500, 403]).unwrap());
        let (method, status) = (&Method::GET, status.unwrap());
        let head = Head { method, target: &target, status, headers: &headers };
        let scan = || match classifier.read(head, LIMITS) {
            Reading::Scan(scan) => scan,
            Reading::Judged(judgement) => panic!("a page is scanned, not {judgement:?}"),
        };
        let mut traced = scan().traced();
        traced.push(page.as_bytes());
        let expected = traced.finish(BodyEnd::Complete).0;
        let (mut kept, mut last) = (scan(), scan());
        kept.push(page.as_bytes());
        assert_eq!(kept.finish(BodyEnd::Complete), expected, "SEED={seed}\n{page}");
        last.push_last(page.as_bytes());
        assert_eq!(last.finish(BodyEnd::Complete), expected, "at once, SEED={seed}\n{page}");
        found += u64::from(status != 403 && expected.verdict != Verdict::Ok);
    }
    assert!(found > count / 4, "only {found} of {count} disguises are seen through at all");
}
