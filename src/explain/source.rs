//! Reads saved responses: a page, a raw response, a HAR or WARC file, or a folder.

mod folder;
mod har;
mod http1;
mod warc;

use std::{io::Read, path::Path};

use super::{Exchange, ExplainError, MAX_FILE, Options, Source};
use crate::classify::BodyEnd;

/// The responses of a source.
pub(super) struct Exchanges {
    pub(super) items: Vec<Exchange>,
    /// Whether it can hold only one response.
    pub(super) single: bool,
}

/// Reads `source`. Its name and its first bytes show the format.
pub(super) fn read(source: &Source, options: &Options) -> Result<Exchanges, ExplainError> {
    let (name, bytes) = match source {
        Source::Bytes(name, bytes) => (name.clone(), bytes.clone()),
        Source::Path(path) if path.is_dir() => return folder::read(path, options),
        Source::Path(path) => (path.display().to_string(), read_file(path)?),
    };
    let is_named = |end: &str| name.to_ascii_lowercase().ends_with(end);
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) && is_named(".gz") {
        gunzip(&name, &bytes)?
    } else {
        bytes
    };
    if bytes.starts_with(b"WARC/") {
        return Ok(Exchanges { items: warc::read(&name, &bytes)?, single: false });
    }
    if is_named(".har") || is_named(".har.gz") || har::is_one(&bytes) {
        return Ok(Exchanges { items: har::read(&name, &bytes)?, single: false });
    }
    let one = if bytes.starts_with(b"HTTP/") {
        http1::read(&name, &bytes, options)?
    } else {
        page(name, bytes, options)
    };
    Ok(Exchanges { items: vec![one], single: true })
}

/// Reads a whole file, up to [`MAX_FILE`].
fn read_file(path: &Path) -> Result<Vec<u8>, ExplainError> {
    let failed = |error| ExplainError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        let why = format!("it is larger than {MAX_FILE} bytes; split it");
        return Err(failed(std::io::Error::other(why)));
    }
    Ok(bytes)
}

/// Unpacks a `.gz`, up to [`MAX_FILE`].
fn gunzip(name: &str, bytes: &[u8]) -> Result<Vec<u8>, ExplainError> {
    let bad = |why: String| ExplainError::Malformed { name: name.to_owned(), format: "gzip", why };
    let mut unpacked = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(bytes)
        .take(MAX_FILE + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| bad(error.to_string()))?;
    if read as u64 > MAX_FILE {
        return Err(bad(format!("it unpacks to more than {MAX_FILE} bytes; split it")));
    }
    Ok(unpacked)
}

/// A saved page, with the caller's status and header fields.
fn page(name: String, body: Vec<u8>, options: &Options) -> Exchange {
    Exchange {
        name,
        method: options.method.clone(),
        url: options.url.clone(),
        status: options.status,
        headers: options.headers.clone(),
        body,
        end: BodyEnd::Complete,
        expected: None,
    }
}
