//! `tidegate check` and `tidegate schema`.

use std::path::PathBuf;

use anyhow::Context as _;

use super::{
    Global, Outcome,
    out::{Out, Style},
    which,
};
use crate::{
    cli::app::preflight,
    config::{self, Severity},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate check rules.yaml
  tidegate check rules.yaml --explain https://shop.example/search
  tidegate check rules.yaml --json | jq '.problems[].message'
  tidegate check && kill -HUP \"$(pidof tidegate)\"")]
pub(super) struct Args {
    /// The rule file
    file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Show the rule for requests to this URL, its limits, and the reason
    #[arg(long, value_name = "URL")]
    explain: Option<String>,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let path = args.file.as_deref().or(global.config.as_deref());
    let read = config::load_with(path, &global.overrides(), &config::process_env);
    if let (Some(url), Ok(loaded)) = (&args.explain, &read) {
        return which::explain(loaded, url, args.json, out);
    }
    let start = read.as_ref().map_or(Ok(()), preflight);
    let (problems, rules) = match &read {
        Ok(loaded) => (loaded.warnings.as_slice(), loaded.rules.as_slice().len()),
        // An invalid file is an ordinary error: printed to standard error, exit code 2.
        Err(problems) if !args.json => return Err(problems.clone().into()),
        Err(problems) => (problems.as_slice(), 0),
    };
    if args.json {
        let mut report = config::report_json(problems);
        report["start"] = start.as_ref().err().map(|error| format!("{error:#}")).into();
        out.json(&report)?;
        let bad = problems.iter().any(|problem| problem.severity == Severity::Error);
        return Ok(match start {
            _ if bad => Outcome::BadFile,
            Ok(()) => Outcome::Success,
            Err(_) => Outcome::Negative,
        });
    }
    for problem in problems {
        out.line(problem)?;
    }
    start.context("the file is valid, but the proxy would not start on this machine")?;
    let name = config::file_of(path)
        .map_or_else(|| config::BUILT_IN_NAME.to_owned(), |path| path.display().to_string());
    let plural = if rules == 1 { "" } else { "s" };
    out.line(format_args!("{} {name}: {rules} rule{plural}", out.paint(Style::Good, "good")))?;
    Ok(Outcome::Success)
}

pub(super) fn schema(out: &Out) -> anyhow::Result<Outcome> {
    out.json(&config::schema::json())?;
    Ok(Outcome::Success)
}
