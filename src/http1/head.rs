//! A strict parser for the head of a request. It reads each line as it arrives, finds violations,
//! and reports how the body is framed.
//!
//! Each line is checked once, as soon as it is complete, so the result does not depend on how the
//! bytes were split into reads. Checks that hyper makes as strictly, such as for methods, are left
//! to it.

use http::Uri;
use memchr::memchr;

use super::{
    ascii::{has_control, is_host, is_in_title_case, is_token, is_usual_target},
    violation::Violation,
};

/// Length of `HTTP/1.1`.
const VERSION: usize = 8;
/// Longest request line: a target of 16 KiB, and space for the method.
const MAX_REQUEST_LINE: usize = 16 * 1024 + 256;
/// Empty lines before a request line that are skipped. Old clients send one (RFC 9112 section 2.2).
const MAX_EMPTY_LINES: u8 = 4;

/// Upper bounds of a head.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a head.
    pub bytes: usize,
    /// Fields of a head.
    pub fields: usize,
}

/// The bytes after a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    /// The next head.
    Head,
    /// A body of this length, then the next head.
    Length(u64),
    /// Chunks, then the next head.
    Chunks,
    /// Depends on the response to a CONNECT.
    AfterConnect,
    /// Depends on the response to an Upgrade.
    AfterUpgrade,
}

/// The progress of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its last line is incomplete.
    Incomplete,
    /// It ends after this many bytes.
    Complete(usize, Follows),
    /// An `OPTIONS http://host` whose empty path is at this offset; see [`super`].
    EmptyPath(usize),
}

/// A head that is being parsed.
#[derive(Debug, Default)]
pub(super) struct Head {
    line_start: usize,
    searched: usize,
    empty_lines: u8,
    fields: usize,
    request: Option<Request>,
    hosts: u8,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
    other_case: bool,
}

/// The request line.
#[derive(Debug, Clone, Copy)]
struct Request {
    connect: bool,
    minor: u8,
}

impl Head {
    /// Parses more of `bytes`, which begin with the head and grow from call to call.
    pub(super) fn advance(&mut self, bytes: &[u8], limits: Limits) -> Result<Progress, Violation> {
        // No request begins like this, so a TLS hello on the wrong port need not wait for a line end.
        if bytes.first().is_some_and(|first| !is_token(*first) && !first.is_ascii_whitespace()) {
            return Err(Violation::NotHttp);
        }
        while let Some(found) = memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + found;
            self.bound(end, limits)?;
            let line = match bytes[self.line_start..end].split_last() {
                Some((b'\r', line)) => line,
                _ => return Err(Violation::LineEnd),
            };
            let progress =
                self.line(line, limits).map_err(|violation| match memchr(b'\r', line) {
                    // No valid line contains one, so this is the violation.
                    Some(_) => Violation::LineEnd,
                    None => violation,
                })?;
            if let Some(progress) = progress {
                return Ok(match progress {
                    Progress::Complete(_, follows) => Progress::Complete(end + 1, follows),
                    Progress::EmptyPath(at) => Progress::EmptyPath(self.line_start + at),
                    Progress::Incomplete => Progress::Incomplete,
                });
            }
            (self.line_start, self.searched) = (end + 1, end + 1);
        }
        self.searched = bytes.len();
        self.bound(bytes.len(), limits)?;
        Ok(Progress::Incomplete)
    }

    /// Whether all field names are in title case (`User-Agent`), as hyper writes them by default.
    pub(super) fn is_in_title_case(&self) -> bool {
        !self.other_case
    }

    fn bound(&self, end: usize, limits: Limits) -> Result<(), Violation> {
        if self.request.is_none() && end - self.line_start > MAX_REQUEST_LINE {
            Err(Violation::TargetTooLong)
        } else if end >= limits.bytes {
            Err(Violation::HeadTooLarge)
        } else {
            Ok(())
        }
    }

    fn line(&mut self, line: &[u8], limits: Limits) -> Result<Option<Progress>, Violation> {
        match (self.request, line.is_empty()) {
            (None, true) if self.empty_lines < MAX_EMPTY_LINES => {
                self.empty_lines += 1;
                Ok(None)
            }
            (None, _) => self.request_line(line),
            (Some(request), true) => Ok(Some(Progress::Complete(0, self.follows(request)?))),
            (Some(_), false) if self.fields == limits.fields => Err(Violation::TooManyFields),
            (Some(request), false) => self.field(line, request).map(|()| None),
        }
    }

    fn request_line(&mut self, line: &[u8]) -> Result<Option<Progress>, Violation> {
        // The first and the last word. The target between them must not contain a blank.
        let method = &line[..line.iter().position(|b| !is_token(*b)).unwrap_or(line.len())];
        let Some((target, version)) = line[method.len()..]
            .strip_prefix(b" ")
            .and_then(|rest| rest.split_at_checked(rest.len().checked_sub(VERSION)?))
            .and_then(|(target, version)| Some((target.strip_suffix(b" ")?, version)))
        else {
            return Err(Violation::RequestLine);
        };
        if method.is_empty() || !is_target(target) {
            return Err(Violation::RequestLine);
        }
        let minor = match version {
            b"HTTP/1.1" => 1,
            b"HTTP/1.0" => 0,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(Violation::Version);
            }
            _ => return Err(Violation::RequestLine),
        };
        if method == b"OPTIONS" && has_empty_path(target) {
            return Ok(Some(Progress::EmptyPath(method.len() + 1 + target.len())));
        }
        self.request = Some(Request { connect: method == b"CONNECT", minor });
        Ok(None)
    }

    fn field(&mut self, line: &[u8], request: Request) -> Result<(), Violation> {
        self.fields += 1;
        let name_end = line.iter().position(|b| !is_token(*b)).ok_or(Violation::Field)?;
        let (name, rest) = line.split_at(name_end);
        let (Some(b':'), false) = (rest.first(), name.is_empty()) else {
            return Err(Violation::Field);
        };
        self.other_case |= !is_in_title_case(name);
        let value = &rest[1..];
        if has_control(value) {
            return Err(Violation::Control);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value.trim_ascii()),
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade = true;
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.length(value.trim_ascii()),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(value.trim_ascii(), request)
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Violation> {
        self.hosts += 1;
        if self.hosts == 1 && is_host(value) { Ok(()) } else { Err(Violation::Host) }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), Violation> {
        // 18 digits are more than any body needs, and cannot overflow.
        let plain = (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        if !plain || self.length.is_some() {
            return Err(Violation::ContentLength);
        }
        let number = value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        self.length = Some(number);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8], request: Request) -> Result<(), Violation> {
        if self.chunked || request.minor == 0 {
            return Err(Violation::TransferEncoding);
        }
        self.chunked = true;
        if value.eq_ignore_ascii_case(b"chunked") {
            return Ok(());
        }
        let codings = || value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
        let chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        let well_formed = codings().all(|c| !c.is_empty() && c.iter().all(|b| is_token(*b)));
        let once_at_the_end = codings().filter(|c| chunked(c)).count() == 1
            && codings().next_back().is_some_and(chunked);
        if well_formed && once_at_the_end {
            Err(Violation::TransferCoding)
        } else {
            Err(Violation::TransferEncoding)
        }
    }

    fn follows(&self, request: Request) -> Result<Follows, Violation> {
        if self.hosts == 0 && request.minor == 1 {
            return Err(Violation::Host);
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Violation::TwoLengths),
            (true, None) if request.connect => Err(Violation::ConnectBody),
            (false, Some(1..)) if request.connect => Err(Violation::ConnectBody),
            (true, None) => Ok(Follows::Chunks),
            (false, Some(length @ 1..)) => Ok(Follows::Length(length)),
            (false, _) if request.connect => Ok(Follows::AfterConnect),
            (false, _) if self.upgrade => Ok(Follows::AfterUpgrade),
            (false, _) => Ok(Follows::Head),
        }
    }
}

/// Whether the `http` crate accepts the target too, so that hyper never has to refuse it.
fn is_target(target: &[u8]) -> bool {
    // That crate ignores everything after a `#`.
    is_usual_target(target) || !target.contains(&b' ') && Uri::try_from(target).is_ok()
}

/// `http://host` with neither path nor query.
fn has_empty_path(target: &[u8]) -> bool {
    memchr::memmem::find(target, b"://").is_some_and(|at| {
        let (scheme, rest) = (&target[..at], &target[at + 3..]);
        scheme.iter().all(u8::is_ascii_alphabetic)
            && !rest.is_empty()
            && !rest.iter().any(|b| matches!(b, b'/' | b'?' | b'#'))
    })
}
