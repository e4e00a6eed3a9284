//! A strict parser for chunked bodies (RFC 9112 section 7.1), byte by byte.
//!
//! Where parsers disagree about chunks, a request can be hidden in them. So every ambiguous form is
//! refused.

use super::{
    ascii::{has_control, is_token},
    violation::Violation,
};

/// Most extension bytes of a body.
const MAX_EXTENSIONS: usize = 16 * 1024;
/// Most trailer bytes of a body.
const MAX_TRAILERS: usize = 16 * 1024;
/// Hex digits of a chunk size: 60 bits, so that nothing overflows.
const MAX_DIGITS: u8 = 15;

/// The meaning of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
}

/// The parser's state.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    size: u64,
    digits: u8,
    extensions: usize,
    trailers: usize,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// The number of valid bytes.
    pub(super) good: usize,
    /// The violation in the next byte, or whether the body ends there.
    pub(super) end: Result<bool, Violation>,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { at: At::Size, size: 0, digits: 0, extensions: 0, trailers: 0 }
    }
}

impl Chunks {
    /// Parses more bytes.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Read {
        let mut good = 0;
        while let Some(&b) = bytes.get(good) {
            if self.at == At::Data {
                let there = u64::try_from(bytes.len() - good).unwrap_or(u64::MAX);
                let taken = self.size.min(there);
                self.size -= taken;
                good += usize::try_from(taken).unwrap_or(usize::MAX);
                if self.size == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            match self.step(b) {
                Ok(false) => good += 1,
                Ok(true) => return Read { good: good + 1, end: Ok(true) },
                Err(violation) => return Read { good, end: Err(violation) },
            }
        }
        Read { good, end: Ok(false) }
    }

    /// Parses one byte of framing; true if it is the last one.
    fn step(&mut self, b: u8) -> Result<bool, Violation> {
        self.at = match (self.at, b) {
            (At::Size, _) if b.is_ascii_hexdigit() && self.digits < MAX_DIGITS => {
                self.digits += 1;
                self.size = self.size << 4 | u64::from(hex(b));
                At::Size
            }
            (At::Size, b';') if self.digits > 0 => At::Extension,
            (At::Size, b'\r') if self.digits > 0 => At::SizeLf,
            (At::Extension, b'\r') => At::SizeLf,
            (At::Extension, _) if !has_control(&[b]) => {
                self.extensions += 1;
                if self.extensions > MAX_EXTENSIONS {
                    return Err(Violation::ChunkExtensions);
                }
                At::Extension
            }
            (At::SizeLf, b'\n') => {
                self.digits = 0;
                if self.size == 0 { At::TrailerStart } else { At::Data }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::LastLf, b'\n') => return Ok(true),
            (At::TrailerStart | At::TrailerName | At::TrailerValue | At::TrailerLf, _) => {
                self.trailer(b)?
            }
            _ => return Err(Violation::Chunk),
        };
        Ok(false)
    }

    fn trailer(&mut self, b: u8) -> Result<At, Violation> {
        self.trailers += 1;
        if self.trailers > MAX_TRAILERS {
            return Err(Violation::TrailersTooLarge);
        }
        match (self.at, b) {
            (At::TrailerStart, b'\r') => Ok(At::LastLf),
            (At::TrailerStart | At::TrailerName, _) if is_token(b) => Ok(At::TrailerName),
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::TrailerValue, b'\r') => Ok(At::TrailerLf),
            (At::TrailerValue, _) if !has_control(&[b]) => Ok(At::TrailerValue),
            (At::TrailerLf, b'\n') => Ok(At::TrailerStart),
            _ => Err(Violation::Field),
        }
    }
}

/// The value of a hex digit.
const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
