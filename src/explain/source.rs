//! Reading saved responses.

use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Exchange, ExplainError, MAX_FILE, Options, Source};
use crate::classify::BodyEnd;

/// What a source has.
pub(super) struct Exchanges {
    pub(super) items: Vec<Exchange>,
    /// True where it is one response by its nature.
    pub(super) single: bool,
}

/// Reads `source`, telling what it is by its name and its first bytes.
pub(super) fn read(source: &Source, options: &Options) -> Result<Exchanges, ExplainError> {
    let (name, bytes) = match source {
        Source::Bytes(name, bytes) => (name.clone(), bytes.clone()),
        Source::Path(path) => (path.display().to_string(), read_file(path)?),
    };
    let one = |exchange| Exchanges { items: vec![exchange], single: true };
    if bytes.starts_with(b"HTTP/") {
        return Ok(one(raw_response(name, &bytes, options)?));
    }
    Ok(one(page(name, bytes, options)))
}

/// Reads a whole file, up to [`MAX_FILE`].
fn read_file(path: &Path) -> Result<Vec<u8>, ExplainError> {
    let failed = |error| ExplainError::Read { path: path.to_owned(), error };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_FILE {
        let why = format!("it has {size} bytes, more than the {MAX_FILE} that are read at once");
        return Err(failed(std::io::Error::other(why)));
    }
    std::fs::read(path).map_err(failed)
}

/// A saved page: status and fields are the caller's.
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

/// A response as on the wire, HTTP/1.
fn raw_response(name: String, bytes: &[u8], options: &Options) -> Result<Exchange, ExplainError> {
    let bad =
        |why: String| ExplainError::Malformed { name: name.clone(), format: "HTTP response", why };
    let mut fields = [httparse::EMPTY_HEADER; 256];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err(bad("its head does not end".to_owned())),
        Err(error) => return Err(bad(error.to_string())),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or(0))
        .map_err(|_| bad("its status is no number from 100 to 999".to_owned()))?;
    let mut headers = HeaderMap::new();
    for field in response.headers.iter() {
        if let (Ok(field_name), Ok(value)) =
            (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value))
        {
            headers.append(field_name, value);
        }
    }
    let body = bytes[length..].to_vec();
    Ok(Exchange {
        name,
        method: options.method.clone(),
        url: options.url.clone(),
        status,
        headers,
        body,
        end: BodyEnd::Complete,
        expected: None,
    })
}
