//! Parses a tunnel's bytes without a key. The headers of TLS records (RFC 8446 section 5.1) distinguish handshake,
//! alerts and application data, and contain their lengths.
//!
//! A client's first bytes show whether it uses another protocol. If so, all its bytes count.

use super::record_overhead::RecordOverhead;

const HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// Record types from ChangeCipherSpec to heartbeat.
const TYPES: std::ops::RangeInclusive<u8> = 20..=24;
/// Longest record: 2^14 bytes, plus the expansion that TLS 1.2 allows a cipher (RFC 5246 section 6.2.3).
const MAX_RECORD: usize = (1 << 14) + 2048;
/// Longer HTTP/2 records count as parts of a body, because lists of fields are shorter.
const MAX_REQUEST: usize = 8 * 1024;
/// The client's offer of HTTP/2 in its hello (RFC 7301: a length, then the name).
const OFFERS_H2: &[u8] = b"\x02h2";

/// How the client's next bytes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// They do not count: handshake, alerts, and application data of the size of a control frame.
    Free,
    /// Application data that begins an HTTP/2 connection, without a request in it.
    Opening,
    /// A record of HTTP/2 that may be a separate request, because requests do not wait for
    /// responses.
    Request,
    /// They may be a request or a part of one.
    Counted,
}

#[derive(Debug, Default)]
enum Stream {
    #[default]
    Start,
    /// Between records, or this many bytes before the end of one.
    Tls { left: usize, piece: Option<Piece> },
    /// Not TLS, or no longer TLS.
    Plain,
}

/// The client's side of a tunnel, as far as it can be parsed.
#[derive(Debug, Default)]
pub(super) struct Records {
    stream: Stream,
    overhead: Option<RecordOverhead>,
    offers_h2: bool,
    /// It uses HTTP/2, as its control frames show.
    is_h2: bool,
    /// The Finished of TLS 1.3, which looks like data, has passed.
    finished: bool,
    /// Application data has passed.
    spoken: bool,
}

impl Records {
    /// The kind and number of the next bytes in `bytes`, which then count as passed. `None` if
    /// there are too few to decide.
    pub(super) fn piece(&mut self, bytes: &[u8]) -> Option<(Piece, usize)> {
        let (mut all, mut passed) = (None, 0);
        while passed < bytes.len() && all != Some(Piece::Request) {
            let Some((piece, length)) = self.next(&bytes[passed..], all) else { break };
            all = Some(piece);
            passed += length;
        }
        all.map(|piece| (piece, passed))
    }

    /// The next bytes of one kind; `None` if more are needed, or if they are not of the `wanted` kind.
    fn next(&mut self, bytes: &[u8], wanted: Option<Piece>) -> Option<(Piece, usize)> {
        if let Stream::Tls { left: 0, .. } | Stream::Start = self.stream {
            match header(bytes, matches!(self.stream, Stream::Start)) {
                Header::Partial => return None,
                Header::None => self.stream = Stream::Plain,
                Header::Record(content, length) => {
                    let piece = self.sort(content, length);
                    if wanted.is_some_and(|wanted| wanted != piece) {
                        return None;
                    }
                    self.begin(content, length, piece);
                }
            }
        }
        match &mut self.stream {
            Stream::Tls { left, piece: Some(piece) } => {
                let (piece, length) = (*piece, bytes.len().min(*left));
                if wanted.is_some_and(|wanted| wanted != piece) {
                    return None;
                }
                *left -= length;
                if piece == Piece::Request {
                    self.stream = Stream::Tls { left: *left, piece: Some(Piece::Counted) };
                }
                if !self.spoken && memchr::memmem::find(&bytes[..length], OFFERS_H2).is_some() {
                    self.offers_h2 = true;
                }
                Some((piece, length))
            }
            _ if wanted.is_some_and(|wanted| wanted != Piece::Counted) => None,
            _ => Some((Piece::Counted, bytes.len())),
        }
    }

    fn sort(&self, content: u8, length: usize) -> Piece {
        if content != DATA {
            return Piece::Free;
        }
        let Some(overhead) = &self.overhead else { return Piece::Counted };
        if !self.finished && overhead.is_finished(length) || overhead.is_control(length) {
            return Piece::Free;
        }
        if !self.spoken && self.offers_h2 && overhead.is_preface(length) {
            return Piece::Opening;
        }
        if self.is_h2 && length <= MAX_REQUEST { Piece::Request } else { Piece::Counted }
    }

    fn begin(&mut self, content: u8, length: usize, piece: Piece) {
        self.stream = Stream::Tls { left: HEADER + length, piece: Some(piece) };
        if content == DATA {
            let overhead = self.overhead.unwrap_or(RecordOverhead::Unknown);
            let is_ack = piece == Piece::Free && self.finished && overhead.is_settings_ack(length);
            self.is_h2 |= self.offers_h2 && (is_ack || piece == Piece::Opening);
            self.finished = true;
            self.spoken |= piece != Piece::Free;
        }
    }

    /// Reads the site's first bytes. Its hello contains version and cipher.
    pub(super) fn site_says(&mut self, bytes: &[u8]) {
        if self.overhead.is_none() && matches!(self.stream, Stream::Tls { .. }) {
            self.overhead = Some(RecordOverhead::of_hello(bytes));
        }
    }

    /// Whether bytes from the site may be a response: within TLS, only after the client has sent a
    /// request.
    pub(super) fn may_be_answered(&self) -> bool {
        !matches!(self.stream, Stream::Tls { .. }) || self.spoken
    }
}

enum Header {
    Record(u8, usize),
    Partial,
    None,
}

/// The header of a record. A client's first record is a handshake.
fn header(bytes: &[u8], first: bool) -> Header {
    let is_type = |content: u8| if first { content == HANDSHAKE } else { TYPES.contains(&content) };
    match *bytes {
        [content, 3, _, high, low, ..] if is_type(content) => {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if length <= MAX_RECORD { Header::Record(content, length) } else { Header::None }
        }
        [content] | [content, 3] | [content, 3, _] | [content, 3, _, _] if is_type(content) => {
            Header::Partial
        }
        _ => Header::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record. Only the client's hello is parsed.
    fn record(content: u8, length: usize) -> Vec<u8> {
        let mut record = vec![content, 3, 3];
        record.extend(u16::try_from(length).expect("a short record").to_be_bytes());
        record.resize(HEADER + length, 0x5a);
        record
    }

    fn hello(offer: &[u8]) -> Vec<u8> {
        let mut hello = record(HANDSHAKE, 200);
        hello[100..100 + offer.len()].copy_from_slice(offer);
        hello
    }

    /// A TLS 1.3 connection after its handshake.
    fn talking(offer: &[u8]) -> Records {
        let mut records = Records::default();
        assert_eq!(records.piece(&hello(offer)), Some((Piece::Free, 205)));
        records.site_says(&super::super::record_overhead::tests::server_hello(0x1301, true));
        let finish = [record(20, 1), record(DATA, 53)].concat();
        assert_eq!(records.piece(&finish), Some((Piece::Free, finish.len())));
        records
    }

    #[test]
    fn a_handshake_is_free_and_each_piece_of_data_counts() {
        let mut records = talking(b"");
        let both = [record(DATA, 300), record(DATA, 400), record(21, 26)].concat();
        assert_eq!(records.piece(&both), Some((Piece::Counted, 305 + 405)));
        assert_eq!(records.piece(&both[710..]), Some((Piece::Free, 31)));
    }

    #[test]
    fn a_finished_passes_once() {
        let mut records = talking(b"");
        assert_eq!(records.piece(&record(DATA, 53)), Some((Piece::Counted, 58)));
    }

    #[test]
    fn control_frames_of_http2_are_free() {
        let mut records = talking(b"");
        for plain in [9, 13, 14, 17, 26] {
            assert_eq!(
                records.piece(&record(DATA, plain + 17)),
                Some((Piece::Free, plain + 17 + 5))
            );
        }
        assert_eq!(records.piece(&record(DATA, 25 + 17)), Some((Piece::Counted, 47)));
    }

    #[test]
    fn only_a_client_that_offers_http2_opens_it_and_only_once() {
        let preface = record(DATA, 24 + 9 + 6 * 6 + 13 + 17);
        assert_eq!(talking(b"").piece(&preface), Some((Piece::Counted, preface.len())));
        let mut records = talking(OFFERS_H2);
        assert!(!records.may_be_answered());
        assert_eq!(records.piece(&preface), Some((Piece::Opening, preface.len())));
        assert!(records.may_be_answered());
        assert_eq!(records.piece(&preface), Some((Piece::Request, preface.len())));
    }

    #[test]
    fn once_http2_is_spoken_each_record_may_be_a_request() {
        let two = [record(DATA, 60), record(DATA, 60)].concat();
        let mut records = talking(OFFERS_H2);
        assert_eq!(records.piece(&record(DATA, 200)), Some((Piece::Counted, 205)), "not known yet");
        assert_eq!(records.piece(&record(DATA, 9 + 17)), Some((Piece::Free, 31)));
        assert_eq!(records.piece(&two), Some((Piece::Request, 65)));
        assert_eq!(records.piece(&two[65..100]), Some((Piece::Request, 35)));
        assert_eq!(records.piece(&two[100..]), Some((Piece::Counted, 30)), "the rest of that one");
        let body = record(DATA, 16 * 1024);
        assert_eq!(records.piece(&body), Some((Piece::Counted, body.len())), "a part of a body");
    }

    #[test]
    fn records_may_come_in_any_pieces() {
        let whole = [record(20, 1), record(DATA, 53), record(DATA, 500), record(21, 19)].concat();
        let mut records = Records::default();
        let mut open = hello(b"");
        for length in 1..HEADER {
            assert_eq!(records.piece(&open[..length]), None, "{length} bytes");
        }
        assert_eq!(records.piece(&open.split_off(7)[..0]), None);
        assert_eq!(records.piece(&open), Some((Piece::Free, 7)));
        assert_eq!(records.piece(&hello(b"")[7..]), Some((Piece::Free, 198)));
        records.site_says(&super::super::record_overhead::tests::server_hello(0x1301, true));
        let (mut counted, mut free, mut waiting) = (0, 0, Vec::new());
        for byte in whole {
            waiting.push(byte);
            match records.piece(&waiting) {
                Some((Piece::Free, length)) => free += length,
                Some((Piece::Counted, length)) => counted += length,
                Some((Piece::Opening | Piece::Request, _)) => {
                    unreachable!("HTTP/2 was not offered")
                }
                None => continue,
            }
            waiting.clear();
        }
        assert_eq!((counted, free), (505, 6 + 58 + 24));
    }

    #[test]
    fn a_protocol_other_than_tls_counts_from_its_first_byte() {
        for text in [&b"S"[..], b"GET / HTTP/1.1\r\n", b"\x16\x04\x01", b"\x17\x03\x03\x00\x05"] {
            let mut records = Records::default();
            assert_eq!(records.piece(text), Some((Piece::Counted, text.len())));
            assert!(records.may_be_answered());
            assert_eq!(records.piece(text), Some((Piece::Counted, text.len())));
        }
        let mut records = talking(b"");
        assert_eq!(
            records.piece(b"no record"),
            Some((Piece::Counted, 9)),
            "what goes astray counts"
        );
    }

    #[test]
    fn without_the_sites_hello_all_data_counts() {
        let mut records = Records::default();
        assert_eq!(records.piece(&hello(b"")), Some((Piece::Free, 205)));
        assert_eq!(
            records.piece(&record(DATA, 26)),
            Some((Piece::Counted, 31)),
            "early data (0-RTT)"
        );
    }
}
