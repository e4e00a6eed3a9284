//! `tidegate learn-signature`: proposes an entry for `detect` from blocked and ordinary pages of
//! one site.

use std::{fmt::Write as _, path::PathBuf, sync::Arc};

use http::{HeaderMap, Method, StatusCode};

use super::{Global, Outcome, Usage, out::Out};
use crate::{
    classify::{Classifier, Signature, verdict::Verdict},
    explain::{
        Options,
        learn::{Proposal, learn},
    },
    rules::RuleSet,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
FILE is a saved page, a raw HTTP response (`curl -i`, or a file of `inspect.keep`), or a folder of
them.
Exit code 1: the proposed signature misses a blocked page or matches an ordinary one.

Example:
  tidegate learn-signature walls/*.html --ordinary pages/*.html")]
pub(super) struct Args {
    /// Blocked pages of the site
    #[arg(required = true, value_name = "FILE")]
    blocked: Vec<PathBuf>,
    /// Ordinary pages of the same site
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    ordinary: Vec<PathBuf>,
    /// Name of the signature
    #[arg(long, default_value = "learnt-wall")]
    name: String,
    /// Verdict of the signature
    #[arg(long, default_value = "captcha")]
    verdict: Verdict,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let inspect = global.load()?.settings.inspect;
    let options = Options {
        status: StatusCode::OK,
        headers: HeaderMap::from_iter([(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("text/html; charset=utf-8"),
        )]),
        method: Method::GET,
        url: None,
        rules: Arc::new(RuleSet::default()),
        limits: inspect.limits(),
        builtin: Classifier::builtin(),
    };
    let learnt = learn(&args.blocked, &args.ordinary, &args.name, args.verdict, &options);
    let proposal = learnt.map_err(|error| Usage(error.to_string()))?;
    out.raw(described(&proposal).as_bytes())?;
    let is_good = proposal.missed.is_empty() && proposal.taken.is_empty();
    Ok(if is_good { Outcome::Success } else { Outcome::Negative })
}

/// The entry for the rule file, and its result on the given pages.
fn described(proposal: &Proposal) -> String {
    let Signature { name, verdict, title, body, text, .. } = &proposal.signature;
    let mut shown = format!("detect:\n  - name: {name}\n    verdict: {verdict}\n");
    for (key, strings) in [("title", title), ("body", body), ("text", text)] {
        if !strings.is_empty() {
            // JSON is YAML.
            let list = serde_json::Value::from(strings.clone());
            _ = writeln!(shown, "    {key}: {list}");
        }
    }
    let (all, ordinary) = proposal.pages;
    let found = all - proposal.missed.len().min(all);
    _ = writeln!(shown, "# matches {found} of {all} blocked pages");
    _ = writeln!(shown, "# matches {} of {ordinary} ordinary pages", proposal.taken.len());
    for missed in &proposal.missed {
        _ = writeln!(shown, "# misses {missed}");
    }
    for taken in &proposal.taken {
        _ = writeln!(shown, "# takes {taken}");
    }
    shown
}
