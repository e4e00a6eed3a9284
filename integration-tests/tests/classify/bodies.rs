//! Bodies that are split, encoded, broken or huge.

use std::io::Write;

use http::{HeaderMap, Method, StatusCode, header};
use tidegate::{
    classify::{BodyEnd, Classifier, Head, Reading, verdict::Verdict},
    target::Target,
};

use crate::{LIMITS, Response, filler, page, prose};

const WALL: &str = "<!DOCTYPE html><html><head><title>Shop</title></head><body>\
    <div id=\"px-captcha\"></div><p>Reference&#32;&#35;18&#46;5d</p></body></html>";

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder =
        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn br(data: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let params = brotli::enc::BrotliEncoderParams::default();
    brotli::BrotliCompress(&mut &data[..], &mut encoded, &params).unwrap();
    encoded
}

fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(data, 3).unwrap()
}

/// `body` as sent with `coding`.
fn encoded(body: Vec<u8>, coding: &str) -> Response {
    let mut response = page(403, "").with("content-encoding", coding);
    response.body = body;
    response
}

#[test]
fn a_wall_is_found_wherever_it_is_cut_into_pieces() {
    for signature in ["human-captcha"] {
        for at in 1..WALL.len() {
            let mut response = page(200, WALL);
            response.piece = at;
            assert_eq!(response.signature(), signature, "pieces of {at} bytes");
        }
    }
}

#[test]
fn every_coding_is_undone_wherever_it_is_cut_into_pieces() {
    let wall = WALL.as_bytes();
    for (coding, body) in [
        ("gzip", gzip(wall)),
        ("x-gzip", gzip(wall)),
        ("deflate", zlib(wall)),
        ("deflate", deflate(wall)),
        ("br", br(wall)),
        ("zstd", zstd(wall)),
        ("gzip, br", br(&gzip(wall))),
        ("deflate, gzip", gzip(&deflate(wall))),
        ("zstd, gzip, br", br(&gzip(&zstd(wall)))),
        ("identity", wall.to_vec()),
    ] {
        for piece in [1, 2, 3, 5, 7, 64, 10_000] {
            let mut response = encoded(body.clone(), coding);
            response.piece = piece;
            assert_eq!(response.signature(), "human-captcha", "{coding} by {piece}");
        }
    }
}

#[test]
fn several_members_of_one_gzip_body_are_read_as_one() {
    let (first, second) = WALL.as_bytes().split_at(90);
    let body = [gzip(first), gzip(second)].concat();
    assert_eq!(encoded(body, "gzip").signature(), "human-captcha");
}

#[test]
fn wrong_labels_are_seen_through() {
    let wall = WALL.as_bytes();
    for (label, body) in [
        ("gzip", wall.to_vec()),
        ("br", wall.to_vec()),
        ("deflate", wall.to_vec()),
        ("br", gzip(wall)),
        ("gzip", zstd(wall)),
        ("identity", gzip(wall)),
        ("utf-8", wall.to_vec()),
    ] {
        assert_eq!(encoded(body, label).signature(), "human-captcha", "labelled {label}");
    }
}

#[test]
fn an_undecodable_body_is_judged_by_its_head_and_is_never_blank() {
    for (coding, body) in [
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\0rubbish that is no deflate".to_vec()),
        ("br", vec![0xff; 64]),
        ("deflate", vec![0xff; 64]),
        ("zstd", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff".to_vec()),
        ("exi", WALL.as_bytes().to_vec()),
        ("gzip, gzip, gzip, gzip", gzip(WALL.as_bytes())),
    ] {
        let mut response = encoded(body, coding);
        assert_eq!(response.signature(), "status-403", "{coding}");
        response.status = 200;
        assert_eq!(response.verdict(), Verdict::Ok, "{coding}");
    }
}

#[test]
fn decompression_bombs_cost_no_more_than_the_inspected_prefix() {
    let zeros = vec![b' '; 16 * 1024 * 1024];
    let start = std::time::Instant::now();
    for (coding, body) in
        [("gzip", gzip(&zeros)), ("gzip, gzip", gzip(&gzip(&zeros))), ("zstd", zstd(&zeros))]
    {
        let response = encoded(body, coding);
        let packed = start.elapsed();
        assert_eq!(response.signature(), "status-403");
        let took = start.elapsed() - packed;
        assert!(took.as_secs() < 2, "{coding} took {took:?}");
    }
}

#[test]
fn codings_that_give_nothing_are_given_up() {
    let target = Target::of_url("http://shop.example/").unwrap();
    let stored = [0, 0, 0, 0xff, 0xff]; // an empty block of deflate (RFC 1951 section 3.2.4)
    for (coding, piece) in [("gzip", gzip(b"")), ("zstd", zstd(b"")), ("deflate", stored.to_vec())]
    {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "text/html".parse().unwrap());
        headers.insert(header::CONTENT_ENCODING, coding.parse().unwrap());
        let (method, status) = (&Method::GET, StatusCode::OK);
        let head = Head { method, target: &target, status, headers: &headers };
        let Reading::Scan(mut scan) = Classifier::builtin().read(head, LIMITS) else {
            panic!("{coding}: a body is scanned")
        };
        let pieces = piece.repeat(1 << 16);
        let looked_at = pieces.chunks(1000).take_while(|bytes| scan.push(bytes)).count();
        assert!(looked_at < pieces.len() / 1000, "{coding}: there is an end");
    }
}

#[test]
fn endless_nesting_broken_markup_and_nul_bytes_do_no_harm() {
    for body in [
        "<div>".repeat(500_000),
        "<".repeat(1_000_000),
        "<!--".repeat(300_000),
        "<a href=\"".repeat(100_000),
        "&".repeat(1_000_000),
        "&#".repeat(500_000),
        "\0".repeat(1_000_000),
        "<script>".repeat(100_000),
        "<title>".repeat(100_000),
        "</".repeat(500_000),
    ] {
        let mut response = page(403, "");
        response.body = body.into_bytes();
        assert_eq!(response.signature(), "status-403");
        response.status = 200;
        assert_eq!(response.verdict(), Verdict::Ok);
    }
}

#[test]
fn an_unclosed_tag_at_the_cut_is_markup_and_not_text() {
    let image = format!(
        "<div id=\"px-captcha\"></div><img src=\"data:image/png;base64,{}",
        "QUJD".repeat(40_000)
    );
    assert_eq!(page(200, &image).signature(), "human-captcha");
    let script = format!("<div id=\"px-captcha\"></div><script>var x='{}", prose(150_000));
    assert_eq!(page(200, &script).signature(), "human-captcha");
    let comment = format!("<div id=\"px-captcha\"></div><!-- {}", prose(150_000));
    assert_eq!(page(200, &comment).signature(), "human-captcha");
}

#[test]
fn utf_16_is_read_by_byte_order_mark_and_by_header() {
    let text = "<html><title>Just a moment...</title></html>";
    let little = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let mut response = page(403, "").with("content-type", "text/html");
    response.body = [b"\xff\xfe".to_vec(), little(text)].concat();
    assert_eq!(response.signature(), "cloudflare-title");
    let mut response = page(403, "").with("content-type", "text/html; charset=utf-16le");
    response.body = little(text);
    response.piece = 1;
    assert_eq!(response.signature(), "cloudflare-title");
}

#[test]
fn html_is_known_by_its_first_bytes_and_json_too() {
    let html = page(403, "\n <!DOCTYPE html><title>Just a moment...</title>");
    assert_eq!(html.clone().without("content-type").signature(), "cloudflare-title");
    assert_eq!(html.with("content-type", "text/plain").signature(), "cloudflare-title");
    let json = "{\"page\":\"<title>Just a moment...</title>\"}";
    assert_eq!(page(200, json).verdict(), Verdict::Ok);
    assert_eq!(page(200, json).with("content-type", "application/json").verdict(), Verdict::Ok);
    let download = page(200, "<title>Just a moment...</title>");
    assert_eq!(
        download.with("content-disposition", "attachment; filename=a.html").verdict(),
        Verdict::Ok
    );
}

#[test]
fn the_limits_count_decoded_bytes_and_depend_on_the_status() {
    let late = |status| page(status, &format!("{}<div id=\"px-captcha\"></div>", filler(40_000)));
    assert_eq!(late(200).verdict(), Verdict::Ok, "16 KiB of a 200");
    assert_eq!(late(403).signature(), "human-captcha", "128 KiB of a 403");
    assert_eq!(late(202).signature(), "human-captcha");
}

/// How many bytes of a page, sent in pieces of `piece` bytes, are scanned, and how many are
/// accepted before the scan stops.
fn looked_at(status: u16, body: &str, piece: usize) -> (usize, usize) {
    let target = Target::of_url("https://site.example/").unwrap();
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, "text/html".parse().unwrap())]);
    let status = StatusCode::from_u16(status).unwrap();
    let head = Head { method: &Method::GET, target: &target, status, headers: &headers };
    let Reading::Scan(scan) = Classifier::builtin().read(head, LIMITS) else {
        panic!("HTML is scanned");
    };
    let mut scan = scan.traced();
    let mut taken = 0;
    for piece in body.as_bytes().chunks(piece) {
        taken += piece.len();
        if !scan.push(piece) {
            break;
        }
    }
    (scan.finish(BodyEnd::Open).1.bytes, taken)
}

#[test]
fn a_scan_stops_where_nothing_can_matter_any_more() {
    const STRIDE: usize = 4 * 1024;
    let article = prose(200_000);
    // The first bytes are buffered up to the limit. After that, 1,500 characters of a page are
    // enough.
    assert_eq!(looked_at(200, &article, 100), (STRIDE, LIMITS.bytes.next_multiple_of(100)));
    assert_eq!(looked_at(200, &article, article.len()).0, STRIDE);
    // Under a status of walls it takes 4,000, and the page is read as it arrives.
    let titled = format!("<title>A page</title>{article}");
    let (bytes, taken) = looked_at(403, &titled, 100);
    assert!(bytes == taken && (4_000..4_200).contains(&bytes), "{bytes} of {taken} bytes");
    // Longer pages are read as they arrive, under other statuses too.
    let late = format!("<title>A page</title>{}{article}", filler(LIMITS.bytes));
    let (bytes, taken) = looked_at(404, &late, 100);
    let enough = LIMITS.bytes + 1_000..LIMITS.bytes + 2_000;
    assert!(bytes == taken && enough.contains(&bytes), "{bytes} of {taken} bytes");
    assert_eq!(looked_at(503, &article, article.len()).0, LIMITS.error_bytes, "a title may come");
    assert_eq!(looked_at(503, &titled, article.len()).0, STRIDE);
    // Without text only the limit ends the scan.
    assert_eq!(looked_at(200, &filler(100_000), 1_000).0, LIMITS.bytes);
    assert_eq!(looked_at(403, &filler(200_000), 1_000).0, LIMITS.error_bytes);
}

#[test]
fn random_changes_to_real_looking_bodies_never_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    let wall = [WALL.as_bytes(), filler(3_000).as_bytes()].concat();
    let seeds = [
        ("identity", wall.clone()),
        ("gzip", gzip(&wall)),
        ("deflate", zlib(&wall)),
        ("br", br(&wall)),
        ("zstd", zstd(&wall)),
        ("br, gzip", gzip(&br(&wall))),
    ];
    for round in 0..1_500 {
        let (coding, body) = &seeds[round % seeds.len()];
        let mut response = encoded(body.clone(), coding);
        for _ in 0..random.usize(1..12) {
            let at = random.usize(0..response.body.len());
            match random.u8(0..4) {
                0 => response.body[at] = random.u8(..),
                1 => response.body.truncate(at.max(1)),
                2 => response.body.insert(at, *random.choice(b"<>\"'&;-!/\0\xff").unwrap()),
                _ => {
                    let copy = response.body[at..].to_vec();
                    response.body.extend(copy.iter().take(500));
                }
            }
        }
        response.status = [200, 403, 429, 503][random.usize(0..4)];
        response.piece = random.usize(1..4_000);
        response.end = [BodyEnd::Complete, BodyEnd::CutOff, BodyEnd::Open][random.usize(0..3)];
        let judgement = response.judgement();
        let short = |evidence: &tidegate::classify::verdict::Evidence| {
            evidence.excerpt.chars().count() <= 120
        };
        assert!(judgement.evidence.is_none_or(|evidence| short(&evidence)));
    }
}
