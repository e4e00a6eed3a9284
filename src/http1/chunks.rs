//! A strict parser for chunked bodies (RFC 9112 section 7.1), byte by byte.
//!
//! If two parsers read chunks differently, a request can be hidden in them. So every ambiguous form
//! is refused.

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
enum ChunkState {
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
    state: ChunkState,
    size: u64,
    digits: u8,
    extensions: usize,
    trailers: usize,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// The number of valid bytes.
    pub(super) valid: usize,
    /// The violation in the next byte, or whether the body ends there.
    pub(super) end: Result<bool, Violation>,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { state: ChunkState::Size, size: 0, digits: 0, extensions: 0, trailers: 0 }
    }
}

impl Chunks {
    /// Parses more bytes.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Read {
        let mut valid = 0;
        while let Some(&b) = bytes.get(valid) {
            if self.state == ChunkState::Data {
                let there = u64::try_from(bytes.len() - valid).unwrap_or(u64::MAX);
                let taken = self.size.min(there);
                self.size -= taken;
                valid += usize::try_from(taken).unwrap_or(usize::MAX);
                if self.size == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            match self.step(b) {
                Ok(false) => valid += 1,
                Ok(true) => return Read { valid: valid + 1, end: Ok(true) },
                Err(violation) => return Read { valid, end: Err(violation) },
            }
        }
        Read { valid, end: Ok(false) }
    }

    /// Parses one byte of framing; true if it is the last one.
    fn step(&mut self, b: u8) -> Result<bool, Violation> {
        self.state = match (self.state, b) {
            (ChunkState::Size, _) if b.is_ascii_hexdigit() && self.digits < MAX_DIGITS => {
                self.digits += 1;
                self.size = self.size << 4 | u64::from(hex(b));
                ChunkState::Size
            }
            (ChunkState::Size, b';') if self.digits > 0 => ChunkState::Extension,
            (ChunkState::Size, b'\r') if self.digits > 0 => ChunkState::SizeLf,
            (ChunkState::Extension, b'\r') => ChunkState::SizeLf,
            (ChunkState::Extension, _) if !has_control(&[b]) => {
                self.extensions += 1;
                if self.extensions > MAX_EXTENSIONS {
                    return Err(Violation::ChunkExtensions);
                }
                ChunkState::Extension
            }
            (ChunkState::SizeLf, b'\n') => {
                self.digits = 0;
                if self.size == 0 { ChunkState::TrailerStart } else { ChunkState::Data }
            }
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Size,
            (ChunkState::LastLf, b'\n') => return Ok(true),
            (
                ChunkState::TrailerStart
                | ChunkState::TrailerName
                | ChunkState::TrailerValue
                | ChunkState::TrailerLf,
                _,
            ) => self.trailer(b)?,
            _ => return Err(Violation::Chunk),
        };
        Ok(false)
    }

    fn trailer(&mut self, b: u8) -> Result<ChunkState, Violation> {
        self.trailers += 1;
        if self.trailers > MAX_TRAILERS {
            return Err(Violation::TrailersTooLarge);
        }
        match (self.state, b) {
            (ChunkState::TrailerStart, b'\r') => Ok(ChunkState::LastLf),
            (ChunkState::TrailerStart | ChunkState::TrailerName, _) if is_token(b) => {
                Ok(ChunkState::TrailerName)
            }
            (ChunkState::TrailerName, b':') => Ok(ChunkState::TrailerValue),
            (ChunkState::TrailerValue, b'\r') => Ok(ChunkState::TrailerLf),
            (ChunkState::TrailerValue, _) if !has_control(&[b]) => Ok(ChunkState::TrailerValue),
            (ChunkState::TrailerLf, b'\n') => Ok(ChunkState::TrailerStart),
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
