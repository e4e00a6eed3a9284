//! Signatures of a rule, and the switches for built-in ones.

use std::{collections::BTreeMap, sync::Arc};

use super::hosts;
use crate::{
    classify::{
        Classifier, Signature, Switches,
        signature::{Example, LocationMatch, SignatureError, StatusRange},
        verdict::Verdict,
    },
    config::{
        cursor::Cursor,
        keys::LONGEST_PATTERN,
        range,
        section::Reader,
        units::{self, Read, Wrong, quote},
    },
};

/// The built-in signatures as switched for the whole file, compiled once for all rules that add
/// nothing.
pub(super) struct Signatures {
    switches: Switches,
    classifier: Arc<Classifier>,
}

/// Reads the file's `signatures`.
pub(super) fn switches(reader: &Reader<'_>) -> Signatures {
    let switches = switched(reader, Switches::default());
    let classifier = compile(reader, "signatures", Vec::new(), &switches);
    Signatures { switches, classifier }
}

fn switched(reader: &Reader<'_>, mut switches: Switches) -> Switches {
    let Some(cursor) = reader.given_cursor("signatures") else { return switches };
    for (name, how) in cursor.entries() {
        let id: Arc<str> = Arc::from(name.text.as_str());
        switches.off.retain(|known| *known != id);
        switches.log.retain(|known| *known != id);
        match how.scalar(|text| range::word(how.kind, text)) {
            Some("off") => switches.off.push(id),
            Some(_) => switches.log.push(id),
            None => {}
        }
    }
    switches
}

/// The classifier of one rule.
pub(super) fn classifier(reader: &Reader<'_>, common: &Signatures) -> Arc<Classifier> {
    let cursor = reader.cursor("detect");
    let own = cursor.map_or_else(Vec::new, |cursor| cursor.list());
    if own.is_empty() && !reader.counts("signatures") {
        return Arc::clone(&common.classifier);
    }
    let switches = switched(reader, common.switches.clone());
    let signatures = own.iter().map(signature).collect::<Vec<_>>();
    for (cursor, signature) in own.iter().zip(&signatures) {
        try_examples(cursor, signature.as_ref());
    }
    if signatures.iter().any(Option::is_none) {
        return Arc::clone(&common.classifier);
    }
    let key = if own.is_empty() { "signatures" } else { "detect" };
    compile(reader, key, signatures.into_iter().flatten().collect(), &switches)
}

fn compile(
    reader: &Reader<'_>,
    key: &str,
    own: Vec<Signature>,
    switches: &Switches,
) -> Arc<Classifier> {
    Classifier::with(own, switches).unwrap_or_else(|error| {
        let message = error.to_string();
        match error {
            SignatureError::Unknown(id, near) => no_such_signature(reader, &id, message, near),
            _ => reader.wrong(key, Wrong { message, help: None }),
        }
        Classifier::builtin()
    })
}

/// Reports a switch for a signature that does not exist, at its name.
fn no_such_signature(reader: &Reader<'_>, id: &str, message: String, near: Option<Arc<str>>) {
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "the evidence of each verdict names its signature: see `tidegate explain` and \
                 `/api/v1/events`"
            .to_owned(),
    };
    let switches = reader.given_cursor("signatures").map_or_else(Vec::new, |all| all.entries());
    for (name, entry) in switches.iter().filter(|(name, _)| name.text == id) {
        entry.wrong_name(name, Wrong::new(message.clone(), help.clone()));
    }
}

/// One entry of `detect`; `None` if its name or verdict is missing or wrong.
fn signature(cursor: &Cursor<'_>) -> Option<Signature> {
    let reader = cursor.open();
    let name = reader.optional("name", hosts::name);
    let verdict: Option<Verdict> = reader.optional_word("verdict");
    let status = reader.many("status", |text| units::status(text).map(|(a, b)| StatusRange(a, b)));
    let texts = |key| reader.many(key, pattern);
    let (title, body) = (texts("title"), texts("body"));
    let (any, text) = (texts("any"), texts("text"));
    let header = headers(&reader);
    let location = reader.given_cursor("location").map(|cursor| location(&cursor.open()));
    let bare = title.is_empty() && body.is_empty() && any.is_empty() && text.is_empty();
    if bare && status.is_empty() && header.is_empty() && location.is_none() {
        let help = "add `status`, `header`, `location`, `title`, `body`, `any` or `text`";
        cursor.wrong(Wrong::new("it has no condition and would match every response", help));
        return None;
    }
    Some(Signature {
        vendor: reader.optional("vendor", pattern).map(Arc::from),
        confidence: reader.word("confidence"),
        action: reader.word("action"),
        content: reader.word("content"),
        shape: reader.word("shape"),
        max_text: reader.optional_get("max_text"),
        status,
        header,
        location,
        title,
        body,
        any,
        text,
        within: reader.optional_get("within"),
        expect: reader.cursor("expect").map_or_else(Vec::new, |cursor| {
            cursor.list().iter().map(|item| example(&item.open())).collect()
        }),
        ..Signature::new(&name?, verdict?)
    })
}

/// Reports examples whose result differs from the expected one. The rule reports signatures that
/// cannot be compiled.
fn try_examples(cursor: &Cursor<'_>, signature: Option<&Signature>) {
    let failed = signature.and_then(|signature| signature.failed_examples().ok());
    for message in failed.into_iter().flatten() {
        let help = "correct the signature, or set `matches: false` (or `true`) in the example";
        cursor.open().wrong("expect", Wrong::new(message, help));
    }
}

fn headers(reader: &Reader<'_>) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let entries = reader.cursor("header").map_or_else(Vec::new, |cursor| cursor.entries());
    for (name, value) in entries {
        if http::HeaderName::from_bytes(name.text.as_bytes()).is_err() {
            let message = format!("{} is not a valid header name", quote(&name.text));
            value.wrong_name(&name, Wrong::new(message, "write one such as `server`"));
        }
        if let Some(glob) = value.scalar(pattern) {
            headers.insert(name.text.to_ascii_lowercase(), glob);
        }
    }
    headers
}

fn location(reader: &Reader<'_>) -> LocationMatch {
    LocationMatch {
        host: reader.optional("host", pattern),
        path: reader.optional("path", pattern),
        query: reader.optional("query", pattern),
    }
}

fn example(reader: &Reader<'_>) -> Example {
    Example {
        matches: reader.get("matches"),
        url: reader.optional("url", pattern),
        status: reader.get("status"),
        header: headers(reader),
        body: reader.read("body", |text| Ok(text.to_owned())),
    }
}

fn pattern(text: &str) -> Read<String> {
    if text.is_empty() || text.len() > LONGEST_PATTERN {
        let message = format!("a text of {} bytes", text.len());
        return Err(Wrong::new(message, format!("write 1 to {LONGEST_PATTERN}")));
    }
    Ok(text.to_owned())
}
