//! `tidegate explain`: prints the verdict of a saved response, and the reason.

use std::{io::Read as _, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::{Global, Outcome, Usage, out::Out};
use crate::{
    classify::{Classifier, verdict::Verdict},
    explain::{self, MAX_FILE, Options, Report, Source},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
FILE is a saved page, a raw HTTP response (`curl -i`), a HAR or WARC file, or a folder with a manifest.tsv.
Exit code 1: a page is a block or, if the source names the expected verdicts, one differs from its own.

Examples:
  tidegate explain page.html --status 403 --header 'server: cloudflare'
  curl -si https://shop.example/ | tidegate explain -
  tidegate explain crawl.har --config rules.yaml --json")]
pub(super) struct Args {
    /// File, folder or archive to explain; `-` reads standard input
    file: PathBuf,
    /// Status of a saved page
    #[arg(long, default_value = "200")]
    status: u16,
    /// Header field of a saved page; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = field)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Method of the request
    #[arg(long, default_value = "GET")]
    method: Method,
    /// URL of the page; decides which rule applies
    #[arg(long)]
    url: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let loaded = global.load()?;
    let inspect = loaded.settings.inspect;
    let mut headers = HeaderMap::new();
    for (name, value) in &args.headers {
        headers.append(name, value.clone());
    }
    let status = StatusCode::from_u16(args.status)
        .map_err(|_| Usage(format!("`{}` is not a valid status: 100 to 599", args.status)))?;
    let options = Options {
        status,
        headers,
        method: args.method.clone(),
        url: args.url.clone(),
        rules: Arc::new(loaded.rules),
        limits: inspect.limits(),
        builtin: Classifier::builtin(),
    };
    let report =
        explain::run(&source(args)?, &options).map_err(|error| Usage(error.to_string()))?;
    if args.json {
        out.json(&serde_json::to_value(&report)?)?;
    } else {
        out.raw(report.to_string().as_bytes())?;
    }
    Ok(if is_negative(&report) { Outcome::Negative } else { Outcome::Success })
}

/// Whether a page is a block or, if the source names the expected verdicts, one differs from its own.
fn is_negative(report: &Report) -> bool {
    match report {
        Report::One(item) => item.verdict != Verdict::Ok,
        Report::Many { items, summary } => match summary.unexpected {
            Some(count) => count > 0,
            None => items.iter().any(|item| item.verdict != Verdict::Ok),
        },
    }
}

fn source(args: &Args) -> anyhow::Result<Source> {
    if args.file.as_os_str() != "-" {
        return Ok(Source::Path(args.file.clone()));
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_FILE)
        .read_to_end(&mut bytes)
        .context("standard input cannot be read")?;
    Ok(Source::Bytes("standard input".to_owned(), bytes))
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("`{text}` is not a valid header field: write 'name: value'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}
