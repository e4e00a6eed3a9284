//! The responses in a WARC file (ISO 28500).

use http::Method;

use super::http1;
use crate::{
    classify::BodyEnd,
    explain::{Exchange, ExplainError},
};

/// A record: its fields and its block.
struct Record<'a> {
    fields: Vec<(String, String)>,
    block: &'a [u8],
}

impl Record<'_> {
    fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads all responses, as responses to GET. The format keeps the method in another record, which
/// is often missing.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Vec<Exchange>, ExplainError> {
    let bad = |position: usize, why: &str| ExplainError::Malformed {
        name: name.to_owned(),
        format: "WARC file",
        why: format!("at byte {position}: {why}"),
    };
    let mut items = Vec::new();
    let mut rest = bytes;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(items);
        }
        let position = bytes.len() - rest.len();
        let (record, after) = record(rest).map_err(|why| bad(position, why))?;
        rest = after;
        let is_http =
            record.field("content-type").is_some_and(|kind| kind.starts_with("application/http"));
        if record.field("warc-type") == Some("response") && is_http {
            let response = http1::parse(record.block).map_err(|why| bad(position, &why))?;
            let url = record.field("warc-target-uri").map(|url| url.trim_matches(['<', '>']));
            // The archiver truncated the body, not the site.
            let truncated = record.field("warc-truncated").is_some();
            items.push(Exchange {
                name: url.map_or_else(|| format!("{name}:{position}"), str::to_owned),
                method: Method::GET,
                url: url.map(str::to_owned),
                status: response.status,
                headers: response.headers,
                body: response.body,
                end: if truncated { BodyEnd::Open } else { response.end },
                expected: None,
            });
        }
    }
}

/// Parses one record. Returns the remaining bytes too.
fn record(bytes: &[u8]) -> Result<(Record<'_>, &[u8]), &'static str> {
    if !bytes.starts_with(b"WARC/") {
        return Err("no record begins here");
    }
    let (head_end, gap) = match memchr::memmem::find(bytes, b"\r\n\r\n") {
        Some(at) => (at, 4),
        None => (memchr::memmem::find(bytes, b"\n\n").ok_or("the record's head does not end")?, 2),
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]);
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    let mut record =
        Record { fields: head.lines().skip(1).filter_map(field).collect(), block: b"" };
    let length = record.field("content-length").and_then(|length| length.parse::<usize>().ok());
    let length = length.ok_or("the record has no length")?;
    let block = &bytes[head_end + gap..];
    if block.len() < length {
        return Err("the file ends within the record");
    }
    record.block = &block[..length];
    Ok((record, &block[length..]))
}
