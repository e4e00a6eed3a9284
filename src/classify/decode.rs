//! Decodes the scanner's copy of a body: gzip, deflate, br and zstd, also stacked or wrongly
//! labelled.
//!
//! Output comes in pieces of [`PIECE`] bytes, and the caller can stop after each piece. So a
//! decompression bomb costs no more than the scanned bytes. Windows are bounded: 32 KiB (deflate),
//! 16 MiB (br without large windows), 8 MiB (zstd).

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, header::CONTENT_ENCODING};
use zstd::stream::raw::{self, DParameter, Operation};

/// Bytes decoded at a time.
const PIECE: usize = 8 * 1024;

/// Most stacked codings that are decoded. No legitimate site sends more.
const MAX_STACKED: usize = 3;

/// log2 of the largest zstd window that RFC 9659 allows for the `zstd` content coding.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Most members of a gzip file, or frames of zstd, that are decoded. Each needs a new decoder, even
/// if it is nearly empty. No legitimate response has as many in the scanned part.
const MAX_MEMBERS: u32 = 1_000;

/// Encoded bytes to read per decoded byte. A regular encoding is hardly longer than its content.
const ENCODED: usize = 2;
/// Encoded bytes that are read in any case, even if few decoded bytes are wanted.
const LEAST_ENCODED: usize = 64 * 1024;

/// Bytes needed to recognise the outermost coding.
const MAGIC: usize = 4;

/// Encoded bytes that may still be read. Some encoded data is endless and decodes to nothing.
#[derive(Debug)]
pub(crate) struct EncodedBudget(usize);

impl EncodedBudget {
    /// The budget for this many decoded bytes.
    pub(crate) fn of(decoded: usize) -> Self {
        Self(decoded.saturating_mul(ENCODED).max(LEAST_ENCODED))
    }

    /// Takes as many of `bytes` as the budget allows.
    pub(crate) fn split_off<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let bytes = &bytes[..bytes.len().min(self.0)];
        self.0 -= bytes.len();
        bytes
    }

    /// Whether nothing more may be read.
    pub(crate) fn is_used_up(&self) -> bool {
        self.0 == 0
    }
}

/// A content coding (RFC 9110 section 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// The body cannot be read: an unknown coding, or broken data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// The codings of a response in the order in which they were applied.
///
/// # Errors
/// An unknown coding, or more than [`MAX_STACKED`].
pub(crate) fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, Unreadable> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value.to_str().map_err(|_| Unreadable)?;
        for word in value.split(',').map(str::trim) {
            codings.push(match word.to_ascii_lowercase().as_str() {
                "" | "identity" | "none" | "utf-8" => continue,
                "gzip" | "x-gzip" => Coding::Gzip,
                "deflate" => Coding::Deflate,
                "br" => Coding::Brotli,
                "zstd" => Coding::Zstd,
                _ => return Err(Unreadable),
            });
        }
    }
    if codings.len() > MAX_STACKED { Err(Unreadable) } else { Ok(codings) }
}

/// The coding that the first bytes show; `None` if they show none.
fn recognise(first: &[u8]) -> Option<Coding> {
    match first {
        [0x1f, 0x8b, ..] => Some(Coding::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Coding::Zstd),
        _ => None,
    }
}

/// Whether the data begins like markup. No encoded data does.
fn is_plain(first: &[u8]) -> bool {
    let text = first.trim_ascii_start();
    matches!(text, [b'<', b'!' | b'?' | b'/' | b'a'..=b'z' | b'A'..=b'Z', ..])
        || first.starts_with(b"\xef\xbb\xbf")
}

/// Whether the data has a zlib header (RFC 1950 section 2.2). Many senders of `deflate` omit it.
fn has_zlib_header(first: &[u8]) -> bool {
    matches!(first, [cmf, flg, ..]
        if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flg)) % 31 == 0)
}

/// Decodes one body.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The codings as labelled, the outermost last. Taken once the first bytes are known.
    labelled: Vec<Coding>,
    /// The first bytes, until there are enough to recognise a wrong label.
    first: Vec<u8>,
    /// Outermost first; `None` until recognised.
    stages: Option<Vec<Stage>>,
}

impl Decoder {
    pub(crate) const fn new(labelled: Vec<Coding>) -> Self {
        Self { labelled, first: Vec::new(), stages: None }
    }

    /// Whether `bytes`, as a complete body, are not encoded.
    pub(crate) fn is_identity(&self, bytes: &[u8]) -> bool {
        let is_first = self.stages.is_none() && self.first.is_empty();
        is_first && self.labelled.is_empty() && recognise(bytes).is_none()
    }

    /// Decodes `bytes` and passes the pieces to `sink` until it returns false.
    ///
    /// # Errors
    /// Broken data. The pieces before the error are valid.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, Unreadable> {
        if let Some(stages) = &mut self.stages {
            return run(stages, bytes, sink);
        }
        if self.first.is_empty() && bytes.len() >= MAGIC {
            return run(self.start(bytes)?, bytes, sink);
        }
        self.first.extend_from_slice(bytes);
        if self.first.len() < MAGIC { Ok(true) } else { self.finish(sink) }
    }

    /// Decodes the bytes that were buffered to recognise the coding.
    pub(crate) fn finish(
        &mut self,
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, Unreadable> {
        let first = std::mem::take(&mut self.first);
        if first.is_empty() {
            return Ok(true);
        }
        run(self.start(&first)?, &first, sink)
    }

    /// Whether the data ended where its codings say it ends.
    pub(crate) fn is_complete(&self) -> bool {
        self.stages.as_ref().is_none_or(|stages| stages.iter().all(|stage| stage.ended))
    }

    /// Chooses the codings once the first bytes are known. The data overrides a wrong label.
    fn start(&mut self, first: &[u8]) -> Result<&mut [Stage], Unreadable> {
        let mut codings = std::mem::take(&mut self.labelled);
        let labelled = codings.pop();
        let outermost = match recognise(first) {
            Some(found) => Some(found),
            None if is_plain(first) => None,
            None if matches!(labelled, Some(Coding::Gzip | Coding::Zstd)) => {
                return Err(Unreadable);
            }
            None => labelled,
        };
        let inner = codings.into_iter().rev().map(|coding| Stage::new(coding, None));
        let stages: Result<Vec<Stage>, Unreadable> = outermost
            .map(|coding| Stage::new(coding, Some(first)))
            .into_iter()
            .chain(inner)
            .collect();
        Ok(self.stages.insert(stages?))
    }
}

/// Runs `input` through all stages.
fn run(
    stages: &mut [Stage],
    input: &[u8],
    sink: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool, Unreadable> {
    match stages.split_first_mut() {
        None => Ok(sink(input)),
        Some((outermost, inner)) => outermost.run(input, inner, sink),
    }
}

/// The decoder of one coding.
enum Engine {
    Flate(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(raw::Decoder<'static>),
}

/// One of the stacked codings.
struct Stage {
    coding: Coding,
    /// `None` for a `deflate` until its first bytes are known.
    engine: Option<Engine>,
    piece: Box<[u8]>,
    /// Whether a stream has ended. Another stream may follow (gzip, zstd), or garbage, which is ignored.
    ended: bool,
    /// Streams so far.
    members: u32,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("coding", &self.coding).finish_non_exhaustive()
    }
}

/// The result of one step.
struct Step {
    read: usize,
    written: usize,
    ended: bool,
    /// The rest cannot be decoded. The output so far is valid.
    broken: bool,
}

impl Stage {
    fn new(coding: Coding, first: Option<&[u8]>) -> Result<Self, Unreadable> {
        let engine = match (coding, first) {
            (Coding::Deflate, None) => None,
            (Coding::Deflate, Some(first)) => Some(Engine::deflate(first)),
            _ => Some(Engine::new(coding)?),
        };
        let piece = vec![0; PIECE].into_boxed_slice();
        Ok(Self { coding, engine, piece, ended: false, members: 1 })
    }

    /// Decodes `input` and passes each piece through the next stages into `sink`. False once `sink` wants no more
    /// pieces.
    fn run(
        &mut self,
        mut input: &[u8],
        inner: &mut [Self],
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, Unreadable> {
        while !input.is_empty() || !self.ended {
            if self.ended {
                if recognise(input) != Some(self.coding) {
                    return Ok(true);
                }
                self.members += 1;
                if self.members > MAX_MEMBERS {
                    return Err(Unreadable);
                }
                self.engine = Some(Engine::new(self.coding)?);
                self.ended = false;
            }
            let engine = self.engine.get_or_insert_with(|| Engine::deflate(input));
            let step = engine.step(input, &mut self.piece)?;
            input = &input[step.read..];
            self.ended = step.ended;
            if step.written > 0 && !run(inner, &self.piece[..step.written], sink)? {
                return Ok(false);
            }
            if step.broken {
                return Err(Unreadable);
            }
            if step.written < self.piece.len() && input.is_empty() || step.read + step.written == 0
            {
                return Ok(true);
            }
        }
        Ok(true)
    }
}

impl Engine {
    fn new(coding: Coding) -> Result<Self, Unreadable> {
        Ok(match coding {
            Coding::Gzip => Self::Flate(Decompress::new_gzip(15)),
            Coding::Deflate => Self::Flate(Decompress::new(true)),
            Coding::Brotli => Self::Brotli(Box::new(BrotliState::new_strict(
                StandardAlloc::default(),
                StandardAlloc::default(),
                StandardAlloc::default(),
            ))),
            Coding::Zstd => {
                let mut decoder = raw::Decoder::new().map_err(|_| Unreadable)?;
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG);
                decoder.set_parameter(window).map_err(|_| Unreadable)?;
                Self::Zstd(decoder)
            }
        })
    }

    fn deflate(first: &[u8]) -> Self {
        Self::Flate(Decompress::new(has_zlib_header(first)))
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Unreadable> {
        match self {
            Self::Flate(flate) => {
                let before = (flate.total_in(), flate.total_out());
                let status = flate.decompress(input, output, FlushDecompress::None);
                Ok(Step {
                    read: difference(flate.total_in(), before.0),
                    written: difference(flate.total_out(), before.1),
                    ended: matches!(status, Ok(Status::StreamEnd)),
                    broken: status.is_err(),
                })
            }
            Self::Brotli(state) => Ok(brotli_step(state, input, output)),
            Self::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, output).map_err(|_| Unreadable)?;
                Ok(Step {
                    read: status.bytes_read,
                    written: status.bytes_written,
                    ended: status.remaining == 0,
                    broken: false,
                })
            }
        }
    }
}

/// The progress of a counter in one step. It never exceeds the length of a buffer.
fn difference(after: u64, before: u64) -> usize {
    usize::try_from(after - before).unwrap_or(usize::MAX)
}

fn brotli_step(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    input: &[u8],
    output: &mut [u8],
) -> Step {
    let (mut left, mut read) = (input.len(), 0);
    let (mut room, mut written, mut total) = (output.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut left,
        &mut read,
        input,
        &mut room,
        &mut written,
        output,
        &mut total,
        state,
    );
    match result {
        BrotliResult::ResultFailure => Step { read, written, ended: false, broken: true },
        BrotliResult::ResultSuccess => Step { read, written, ended: true, broken: false },
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {
            Step { read, written, ended: false, broken: false }
        }
    }
}
