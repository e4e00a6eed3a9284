//! A raw HTTP/1 response, or the output of `curl -i`.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::{
    classify::BodyEnd,
    explain::{Exchange, ExplainError, Options},
};

/// Most header fields that are read.
const MAX_FIELDS: usize = 256;

/// Most heads before the last one: 1xx responses, the proxy's response to CONNECT, redirects that
/// curl followed.
const MAX_HEADS: usize = 32;

/// A head, and the bytes after it.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) end: BodyEnd,
}

/// Reads one response.
pub(super) fn read(name: &str, bytes: &[u8], options: &Options) -> Result<Exchange, ExplainError> {
    let response = parse(bytes).map_err(|why| ExplainError::Malformed {
        name: name.to_owned(),
        format: "HTTP response",
        why,
    })?;
    Ok(Exchange {
        name: name.to_owned(),
        method: options.method.clone(),
        url: options.url.clone(),
        status: response.status,
        headers: response.headers,
        body: response.body,
        end: response.end,
        expected: None,
    })
}

/// Parses the last response in `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Result<Response, String> {
    let (mut status, mut headers, mut rest) = head(bytes)?;
    for _ in 0..MAX_HEADS {
        if !rest.starts_with(b"HTTP/") {
            break;
        }
        (status, headers, rest) = head(rest)?;
    }
    let is_chunked = headers.get(header::TRANSFER_ENCODING).is_some_and(|value| {
        value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("chunked"))
    });
    // Many tools keep the field but save the body decoded. If it does not parse as chunks, it is
    // the plain body.
    let unchunked = if is_chunked { dechunk(rest) } else { None };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced = announced.and_then(|value| value.parse::<usize>().ok());
    let is_short = announced.is_some_and(|length| rest.len() < length)
        && !headers.contains_key(header::CONTENT_ENCODING);
    let (body, end) = match unchunked {
        Some((body, true)) => (body, BodyEnd::Complete),
        Some((body, false)) => (body, BodyEnd::CutOff),
        None if is_short => (rest.to_vec(), BodyEnd::CutOff),
        None => (rest.to_vec(), BodyEnd::Complete),
    };
    Ok(Response { status, headers, body, end })
}

/// Parses one head. Returns the remaining bytes too.
fn head(bytes: &[u8]) -> Result<(StatusCode, HeaderMap, &[u8]), String> {
    let line_end = memchr::memchr(b'\n', bytes).ok_or("its first line does not end")?;
    let line = String::from_utf8_lossy(&bytes[..line_end]);
    // `HTTP/2 403`, which curl prints, is not valid HTTP/1, so the first line is parsed here.
    let code = line.split_whitespace().nth(1).unwrap_or("");
    let status = StatusCode::from_bytes(code.as_bytes())
        .map_err(|_| format!("`{}` has no status", line.trim().escape_debug()))?;
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let after = &bytes[line_end + 1..];
    let (length, fields) = match httparse::parse_headers(after, &mut fields) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) => return Err("its head does not end".to_owned()),
        Err(error) => return Err(format!("its head: {error}")),
    };
    let mut headers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    Ok((status, headers, &after[length..]))
}

/// Decodes `chunked` (RFC 9112 section 7.1), and whether the last chunk is there. `None` if it is
/// not chunked.
fn dechunk(mut rest: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut body = Vec::new();
    let mut is_first = true;
    loop {
        let Some(line_end) = memchr::memchr(b'\n', rest) else {
            return (!is_first).then_some((body, false));
        };
        let line = String::from_utf8_lossy(&rest[..line_end]).into_owned();
        let digits = line.split(';').next().unwrap_or("").trim();
        let Ok(size) = usize::from_str_radix(digits, 16) else {
            return (!is_first).then_some((body, false));
        };
        rest = &rest[line_end + 1..];
        if size == 0 {
            return Some((body, true));
        }
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        if rest.len() < size {
            return Some((body, false));
        }
        rest = rest[size..].strip_prefix(b"\r\n").unwrap_or(&rest[size..]);
        is_first = false;
    }
}
