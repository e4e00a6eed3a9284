//! The work of `tidegate explain`: reads saved responses and returns verdicts with their reasons.
//!
//! The source is a saved page (the caller gives status and headers), a raw HTTP response, a HAR
//! file, a WARC file, or a folder with a `manifest.tsv`. Nothing here uses the network, and the
//! only I/O is reading files.

pub mod learn;
mod replay;
pub mod report;
mod source;

use std::{io, path::PathBuf, sync::Arc};

use http::{HeaderMap, Method, StatusCode};

use crate::{
    classify::{BodyEnd, Classifier, Head, Reading, ScanLimits, verdict::Judgement},
    rules::{Rule, RuleSet},
    target::{BadTarget, Host, Target},
};

pub use report::{Cooldown, Item, Report, Summary};

/// Largest file that is read. Saved crawls have tens of megabytes.
pub const MAX_FILE: u64 = 512 * 1024 * 1024;

/// What to explain.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file or a folder.
    Path(PathBuf),
    /// Bytes that were already read (standard input), and a name for them.
    Bytes(String, Vec<u8>),
}

/// Facts about the source that only the caller knows.
#[derive(Debug, Clone)]
pub struct Options {
    /// Status of a saved page. Other sources contain their own.
    pub status: StatusCode,
    /// Header fields of a saved page. Other sources contain their own.
    pub headers: HeaderMap,
    /// Method of the request.
    pub method: Method,
    /// The URL of the page, which decides which rule applies.
    pub url: Option<String>,
    /// The rules, for their own signatures and cooldowns.
    pub rules: Arc<RuleSet>,
    /// How much of a body is scanned.
    pub limits: ScanLimits,
    /// The signatures if no rule applies.
    pub builtin: Arc<Classifier>,
}

/// Why nothing could be explained; a message for people.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// A file could not be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file does not have the format that it seems to have.
    #[error("{name} cannot be read as {format}: {why}")]
    Malformed {
        /// The file.
        name: String,
        /// The expected format.
        format: &'static str,
        /// Why the file does not have it.
        why: String,
    },
    /// The URL is invalid.
    #[error("the URL is not a valid target: {0}")]
    Url(#[from] BadTarget),
}

/// One response to explain.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    /// Its name in the report.
    pub(crate) name: String,
    pub(crate) method: Method,
    pub(crate) url: Option<String>,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The body as received, or decoded if the source stores it decoded. Then `headers` has no
    /// `content-encoding`.
    pub(crate) body: Vec<u8>,
    /// Whether the source has the whole body.
    pub(crate) end: BodyEnd,
    /// The verdicts that the source expects, separated by `|`.
    pub(crate) expected: Option<String>,
}

/// Explains the responses of `source`.
///
/// # Errors
/// An unreadable or invalid source. One unreadable entry of a folder is an error too, so that no
/// report is silently incomplete.
pub fn run(source: &Source, options: &Options) -> Result<Report, ExplainError> {
    let exchanges = source::read(source, options)?;
    let mut judged = Vec::with_capacity(exchanges.items.len());
    for exchange in exchanges.items {
        let target = match exchange.url.as_deref().map(Target::of_url) {
            Some(Ok(target)) => target,
            Some(Err(error)) if exchanges.single => return Err(error.into()),
            // No URL, or one without a host: rules for certain hosts do not apply.
            Some(Err(_)) | None => Target::of_url("http://unknown.invalid/")?,
        };
        let rule = options.rules.find(&target).map(|at| Arc::clone(&options.rules.as_slice()[at]));
        let (judgement, item) =
            judge(&exchange, &target, rule.as_deref(), &options.builtin, options.limits);
        judged.push(Judged { item, judgement, rule, host: target.host });
    }
    if exchanges.single
        && let Some(only) = judged.pop()
    {
        return Ok(Report::One(Box::new(only.item)));
    }
    let summary = replay::sum_up(&judged);
    Ok(Report::Many { items: judged.into_iter().map(|one| one.item).collect(), summary })
}

/// A response with its verdict.
struct Judged {
    item: Item,
    judgement: Judgement,
    rule: Option<Arc<Rule>>,
    host: Host,
}

/// Judges one response like the proxy does.
pub(crate) fn judge(
    exchange: &Exchange,
    target: &Target,
    rule: Option<&Rule>,
    builtin: &Arc<Classifier>,
    limits: ScanLimits,
) -> (Judgement, Item) {
    let classifier = rule.map_or(builtin, |rule| &rule.classifier);
    let head = Head {
        method: &exchange.method,
        target,
        status: exchange.status,
        headers: &exchange.headers,
    };
    let (judgement, near, visible_text) = match classifier.read(head, limits) {
        Reading::Judged(judgement) => (judgement, Vec::new(), 0),
        Reading::Scan(scan) => {
            let mut scan = scan.traced();
            let wants_more = scan.push(&exchange.body);
            let end = if wants_more { exchange.end } else { BodyEnd::Open };
            let (judgement, trace) = scan.finish(end);
            (judgement, trace.near, trace.visible_text)
        }
    };
    let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    let item = Item {
        name: exchange.name.clone(),
        url: exchange.url.clone(),
        status: exchange.status.as_u16(),
        verdict: judgement.verdict,
        confidence: judgement.confidence,
        neutral: judgement.neutral,
        rule: rule.map(|rule| rule.name.to_string()),
        evidence: judgement.evidence.clone(),
        retry_after: judgement.retry_after.map(|wait| wait.as_secs_f64()),
        near,
        decoys: names(&judgement.decoys),
        logged: names(&judgement.logged),
        visible_text,
        expected: exchange.expected.clone(),
    };
    (judgement, item)
}
