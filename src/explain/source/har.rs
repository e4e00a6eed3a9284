//! The responses in a HAR 1.2 file, as browsers save it.

use base64::Engine;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;

use crate::{
    classify::BodyEnd,
    explain::{Exchange, ExplainError},
};

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    request: Request,
    response: Response,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
}

#[derive(Deserialize)]
struct Response {
    status: u16,
    #[serde(default)]
    headers: Vec<Field>,
    #[serde(default)]
    content: Content,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    value: String,
}

#[derive(Deserialize, Default)]
struct Content {
    /// Bytes of the body; -1 if the browser does not know.
    #[serde(default)]
    size: i64,
    text: Option<String>,
    encoding: Option<String>,
}

/// Whether `bytes` look like a HAR file.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    let start = &start[..start.len().min(512)];
    start.starts_with(b"{")
        && memchr::memmem::find(start, b"\"log\"").is_some()
        && memchr::memmem::find(start, b"\"version\"").is_some()
}

/// Reads all responses. Entries with status 0 failed or were cancelled in the browser; they are
/// skipped.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Vec<Exchange>, ExplainError> {
    let har: Har = serde_json::from_slice(bytes).map_err(|error| ExplainError::Malformed {
        name: name.to_owned(),
        format: "HAR file",
        why: error.to_string(),
    })?;
    let entries = har.log.entries.into_iter().enumerate();
    Ok(entries.filter_map(|(number, entry)| exchange(number, entry)).collect())
}

fn exchange(number: usize, entry: Entry) -> Option<Exchange> {
    let status = StatusCode::from_u16(entry.response.status).ok()?;
    let mut headers = HeaderMap::new();
    for field in &entry.response.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_str(&field.value);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    // The text is saved decoded, and in UTF-8 unless it is base64.
    headers.remove(header::CONTENT_ENCODING);
    let content = entry.response.content;
    let is_saved = content.text.is_some() || content.size <= 0;
    let text = content.text.unwrap_or_default();
    let body = match content.encoding.as_deref() {
        Some("base64") => base64::engine::general_purpose::STANDARD.decode(text).ok()?,
        _ => text.into_bytes(),
    };
    let is_web = entry.request.url.starts_with("http");
    Some(Exchange {
        name: format!("{}: {}", number + 1, entry.request.url),
        method: entry.request.method.parse().unwrap_or(Method::GET),
        url: is_web.then_some(entry.request.url),
        status,
        headers,
        body,
        end: if is_saved { BodyEnd::Complete } else { BodyEnd::Open },
        expected: None,
    })
}
