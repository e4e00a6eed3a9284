//! A folder of saved pages. A `manifest.tsv` gives the status and headers of each.

use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Exchanges, page, read_file};
use crate::explain::{Exchange, ExplainError, Options};

/// Most files of a folder without a manifest.
const MAX_FILES: usize = 100_000;

/// Reads the files of the manifest, in its order. Without a manifest, reads every file, sorted by
/// name.
pub(super) fn read(folder: &Path, options: &Options) -> Result<Exchanges, ExplainError> {
    let manifest = folder.join("manifest.tsv");
    let items = if manifest.is_file() {
        by_manifest(folder, &manifest, options)?
    } else {
        all_files(folder, options)?
    };
    Ok(Exchanges { items, single: false })
}

fn all_files(folder: &Path, options: &Options) -> Result<Vec<Exchange>, ExplainError> {
    let failed = |error| ExplainError::Read { path: folder.to_owned(), error };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)?.take(MAX_FILES) {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let read =
        |path: &std::path::PathBuf| Ok(page(path.display().to_string(), read_file(path)?, options));
    paths.iter().map(read).collect()
}

/// The position of each column.
struct Columns {
    file: usize,
    verdict: Option<usize>,
    status: Option<usize>,
    headers: Option<usize>,
    url: Option<usize>,
}

fn by_manifest(
    folder: &Path,
    manifest: &Path,
    options: &Options,
) -> Result<Vec<Exchange>, ExplainError> {
    let bytes = read_file(manifest)?;
    let bad = |why: String| ExplainError::Malformed {
        name: manifest.display().to_string(),
        format: "manifest",
        why,
    };
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8".to_owned()))?;
    let mut lines = text.lines().enumerate();
    let names: Vec<&str> = lines.next().map_or("", |(_, line)| line).split('\t').collect();
    let column = |name: &str| names.iter().position(|known| *known == name);
    let columns = Columns {
        file: column("file")
            .ok_or_else(|| bad("its first line names no column `file`".to_owned()))?,
        verdict: column("verdict"),
        status: column("status"),
        headers: column("headers"),
        url: column("url"),
    };
    let mut items = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let item = entry(folder, line, &columns, options);
        items.push(item.map_err(|error| match error {
            Bad::Line(why) => bad(format!("line {}: {why}", number + 1)),
            Bad::File(error) => error,
        })?);
    }
    Ok(items)
}

/// An invalid line.
enum Bad {
    Line(String),
    File(ExplainError),
}

fn entry(folder: &Path, line: &str, columns: &Columns, options: &Options) -> Result<Exchange, Bad> {
    let cells: Vec<String> = line.split('\t').map(unquoted).collect();
    let cell = |at: Option<usize>| at.and_then(|at| cells.get(at)).map(String::as_str);
    let file = cell(Some(columns.file)).filter(|file| !file.is_empty());
    let file = file.ok_or_else(|| Bad::Line("it names no file".to_owned()))?;
    let body = read_file(&folder.join(file)).map_err(Bad::File)?;
    let mut exchange = page(file.to_owned(), body, options);
    if let Some(status) = cell(columns.status).filter(|status| !status.is_empty()) {
        exchange.status = StatusCode::from_bytes(status.as_bytes())
            .map_err(|_| Bad::Line(format!("`{status}` is not a valid status")))?;
    }
    if let Some(fields) = cell(columns.headers) {
        exchange.headers = headers(fields).map_err(Bad::Line)?;
    }
    let filled = |at| cell(at).filter(|cell| !cell.is_empty()).map(str::to_owned);
    exchange.url = filled(columns.url).or(exchange.url);
    exchange.expected = filled(columns.verdict);
    Ok(exchange)
}

/// A cell without enclosing quotes. TSV writers put them around a cell that contains quotes, which
/// they double.
fn unquoted(cell: &str) -> String {
    let cell = cell.trim();
    let inner = cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"'));
    inner.map_or_else(|| cell.to_owned(), |inner| inner.replace("\"\"", "\""))
}

/// `name: value; name: value`. A value may contain `; `: a part without a name and a colon
/// continues the previous value.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut fields: Vec<(HeaderName, String)> = Vec::new();
    for part in text.split("; ").filter(|part| !part.is_empty()) {
        let named = part.split_once(": ").or_else(|| part.split_once(':'));
        let named = named.and_then(|(name, value)| {
            Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value.trim()))
        });
        match (named, fields.last_mut()) {
            (Some((name, value)), _) => fields.push((name, value.to_owned())),
            (None, Some((_, value))) => {
                value.push_str("; ");
                value.push_str(part);
            }
            (None, None) => return Err(format!("`{part}` is not a valid header")),
        }
    }
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let value =
            HeaderValue::from_str(&value).or_else(|_| HeaderValue::from_bytes(value.as_bytes()));
        headers
            .append(name, value.map_err(|_| "a header value has control characters".to_owned())?);
    }
    Ok(headers)
}
