//! Makes text from outside safe for a log line, a response and a page: shortened and without
//! control characters.

use std::fmt::Write as _;

use crate::{
    classify::verdict::Evidence,
    target::{Scheme, Target},
};

/// Replaces a query.
pub const QUERY_LEFT_OUT: &str = "?…";
/// Longest text from outside in a log line or an event, in characters.
const CAP: usize = 512;

/// `text` on one line: control characters and direction overrides escaped, cut to 512 characters.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(CAP));
    for (count, c) in text.chars().enumerate() {
        if count == CAP {
            out.push('…');
            break;
        }
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// `target` as people read it: `host`, `:port` unless it is the default, and the path. The query is
/// omitted because it may contain secrets.
#[must_use]
pub fn shown(target: &Target) -> String {
    let mut out = target.host.to_string();
    if target.port != target.scheme.default_port() && target.port != Scheme::Https.default_port() {
        // Writing to a String does not fail.
        _ = write!(out, ":{}", target.port);
    }
    match target.path.split_once('?') {
        Some((path, _)) => {
            out.push_str(&clean(path));
            out.push_str(QUERY_LEFT_OUT);
        }
        None => out.push_str(&clean(&target.path)),
    }
    out
}

/// The evidence, in one phrase.
pub(super) fn evidence(evidence: &Evidence) -> String {
    let vendor = evidence.vendor.as_deref().map(|v| format!(" ({v})")).unwrap_or_default();
    clean(&format!("{}{vendor} in {}: {}", evidence.signature, evidence.place, evidence.excerpt))
}
