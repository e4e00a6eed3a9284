//! Reads the head of a response: the kind of its body, its redirect, and whether its body is worth
//! scanning.

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header::LOCATION};

use super::Head;
use crate::target::Target;

/// The kind of a body, according to the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// HTML.
    Page,
    /// JSON, XML, plain text, or no content type. Treated as HTML if it begins like HTML.
    Data,
    /// Images, fonts, stylesheets, scripts and media, which only a browser fetches.
    Neutral,
    /// Anything else: documents, archives, downloads, event streams. Never scanned.
    Opaque,
}

/// The fields that describe the body, collected in one pass. A lookup of each would cost several
/// times as much.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BodyFields<'a> {
    pub(crate) content_type: Option<&'a HeaderValue>,
    disposition: Option<&'a HeaderValue>,
    /// There is a `Content-Encoding`.
    pub(crate) is_encoded: bool,
    /// There is a `Retry-After`.
    pub(crate) has_retry_after: bool,
}

impl<'a> BodyFields<'a> {
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            match name.as_str() {
                "content-type" => fields.content_type = fields.content_type.or(Some(value)),
                "content-disposition" => {
                    fields.disposition = fields.disposition.or(Some(value));
                }
                "content-encoding" => fields.is_encoded = true,
                "retry-after" => fields.has_retry_after = true,
                _ => {}
            }
        }
        fields
    }
}

/// The kind of the body.
pub(crate) fn kind(fields: BodyFields<'_>) -> Kind {
    if fields.disposition.is_some_and(|value| starts_with(value.as_bytes(), b"attachment")) {
        return Kind::Opaque;
    }
    let Some(value) = fields.content_type else { return Kind::Data };
    let essence = value.as_bytes().split(|b| *b == b';').next().unwrap_or(b"").trim_ascii();
    if essence.eq_ignore_ascii_case(b"text/html") {
        // Most scanned responses end here, without a copy.
        return Kind::Page;
    }
    kind_of(&String::from_utf8_lossy(essence).to_ascii_lowercase())
}

fn kind_of(essence: &str) -> Kind {
    match essence {
        "text/html" | "application/xhtml+xml" => return Kind::Page,
        "" | "application/json" | "application/xml" | "application/x-ndjson" => return Kind::Data,
        "text/css"
        | "text/javascript"
        | "application/javascript"
        | "application/x-javascript"
        | "application/ecmascript"
        | "application/wasm"
        | "application/vnd.ms-fontobject"
        | "application/vnd.apple.mpegurl"
        | "application/x-mpegurl"
        | "application/dash+xml"
        | "application/x-shockwave-flash"
        | "text/vtt" => return Kind::Neutral,
        "text/event-stream" => return Kind::Opaque,
        _ => {}
    }
    let (family, rest) = essence.split_once('/').unwrap_or((essence, ""));
    match family {
        "image" | "font" | "audio" | "video" => Kind::Neutral,
        "text" => Kind::Data,
        "application" if rest.starts_with("font-") || rest.starts_with("x-font-") => Kind::Neutral,
        _ if rest.ends_with("+json") || rest.ends_with("+xml") => Kind::Data,
        _ => Kind::Opaque,
    }
}

/// Whether the body of such a response can show a block. Responses to HEAD (RFC 9110 section
/// 9.3.2), 1xx, 204, 205 and 304 have no body. A part (206) has no beginning, and clients do not
/// read the body of a redirect.
pub(crate) fn has_informative_body(method: &Method, status: StatusCode) -> bool {
    let silent = status.is_informational()
        || status.is_redirection()
        || matches!(status.as_u16(), 204..=206)
        || method == Method::HEAD;
    !silent
}

/// Targets that many sites refuse to robots while they serve everything else. A refusal of them
/// means nothing.
pub(crate) fn is_habitual_refusal(target: &Target) -> bool {
    let path = target.path.as_bytes().split(|b| *b == b'?').next();
    matches!(path, Some(b"/robots.txt" | b"/favicon.ico"))
}

/// With these statuses a CDN reports a fault of the site behind it, in the same layout as its
/// walls.
pub(crate) const fn is_origin_fault(status: u16) -> bool {
    matches!(status, 500 | 502 | 504 | 508 | 509 | 520..=530)
}

/// The target of a redirect, in parts. `Location` is never searched as text, because its query
/// often contains the URL of the requested page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

/// The parsed `Location` of a 3xx.
pub(crate) fn redirect(head: Head<'_>) -> Option<Redirect> {
    if !head.status.is_redirection() {
        return None;
    }
    let text = head.headers.get(LOCATION)?.to_str().ok()?.trim();
    let text = text.split('#').next().unwrap_or("");
    let absolute = match text.strip_prefix("//") {
        Some(rest) => format!("http://{rest}"),
        None => text.to_owned(),
    };
    let uri: Uri = absolute.parse().ok()?;
    let host = uri.host().map_or_else(|| head.target.host.to_string(), str::to_owned);
    Some(Redirect {
        host: host.to_ascii_lowercase(),
        path: uri.path().to_ascii_lowercase(),
        query: uri.query().unwrap_or("").to_ascii_lowercase(),
    })
}

fn starts_with(value: &[u8], start: &[u8]) -> bool {
    value.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

/// Whether an empty body would be a sign of a block: only in response to a successful GET.
pub(crate) fn may_be_blank(head: Head<'_>) -> bool {
    head.method == Method::GET && head.status == StatusCode::OK
}

/// Statuses of walls. Sites use 404 and 410 for pages of their own, and 400 and 422 for invalid
/// forms.
pub(super) const fn is_refusal(status: u16) -> bool {
    matches!(status, 202 | 401 | 403 | 405..=409 | 411..=421 | 423..=499 | 503)
}
