//! `tidegate doctor`: checks whether the requests of this shell's clients go through the proxy and
//! are judged. Each finding comes with a fix.

mod environment;
mod probe;
mod rule;

use std::time::Duration;

use anyhow::Context as _;
use http::Uri;
use serde_json::json;

use self::{environment::Environment, probe::Probe};
use super::{
    Global, Outcome, Usage,
    cooldown::length,
    env::{login, reachable},
    out::{Out, Style},
};
use crate::config::Loaded;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Sends one request through the proxy. Exit code 1: something is wrong.

Examples:
  tidegate doctor
  tidegate doctor https://shop.example/list --timeout 30s
  tidegate doctor --proxy http://crawler:secret@10.0.0.7:3128 --admin 10.0.0.7:9128")]
pub(super) struct Args {
    /// A page of the site to crawl
    #[arg(default_value = "https://example.com/")]
    url: String,
    /// The proxy [default: this shell's proxy variables, otherwise the rule file's `listen`]
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// How long the client waits for a response, with a unit: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = length)]
    timeout: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

words! {
    /// The result of a check.
    enum Level {
        Good = "ok",
        /// Not wrong, but worth knowing.
        Note = "note",
        Bad = "bad",
    }
}

impl Level {
    const fn style(self) -> Style {
        match self {
            Self::Good => Style::Good,
            Self::Note => Style::Warn,
            Self::Bad => Style::Bad,
        }
    }
}

/// A finding of one check.
#[derive(Debug)]
struct Finding {
    level: Level,
    check: &'static str,
    what: String,
    cure: Option<String>,
}

/// The findings of all checks, in order.
#[derive(Debug, Default)]
struct Report(Vec<Finding>);

impl Report {
    fn good(&mut self, check: &'static str, what: impl Into<String>) {
        self.0.push(Finding { level: Level::Good, check, what: what.into(), cure: None });
    }

    fn note(&mut self, check: &'static str, what: impl Into<String>, cure: impl Into<String>) {
        let cure = Some(cure.into());
        self.0.push(Finding { level: Level::Note, check, what: what.into(), cure });
    }

    fn bad(&mut self, check: &'static str, what: impl Into<String>, cure: impl Into<String>) {
        let cure = Some(cure.into());
        self.0.push(Finding { level: Level::Bad, check, what: what.into(), cure });
    }

    fn is_good(&self) -> bool {
        self.0.iter().all(|finding| finding.level != Level::Bad)
    }

    fn print(&self, as_json: bool, out: &Out) -> std::io::Result<()> {
        if as_json {
            let finding = |f: &Finding| json!({"level": f.level.as_str(), "check": f.check, "what": f.what, "cure": f.cure});
            let findings: Vec<_> = self.0.iter().map(finding).collect();
            return out.json(&json!({"good": self.is_good(), "findings": findings}));
        }
        for Finding { level, check, what, cure } in &self.0 {
            let word = out.paint(level.style(), format!("{:<4}", level.as_str()));
            out.line(format_args!("{word}  {check:<11}  {what}"))?;
            if let Some(cure) = cure {
                out.line(format_args!("{:17}  -> {cure}", ""))?;
            }
        }
        Ok(())
    }
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let mut report = Report::default();
    diagnose(global, args, &mut report)?;
    report.print(args.json, out)?;
    Ok(if report.is_good() { Outcome::Success } else { Outcome::Negative })
}

fn diagnose(global: &Global, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let bad_url = || Usage(format!("`{}` is not a valid URL: write https://HOST/PATH", args.url));
    let url: Uri = args.url.parse().map_err(|_| bad_url())?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
        return Err(bad_url().into());
    }
    let loaded = match global.load() {
        Ok(loaded) => loaded,
        Err(problems) => {
            let first = problems.as_slice().first().map(crate::config::Problem::one_line);
            let cure = "correct the mistakes that `tidegate check` shows";
            report.bad("rule file", first.unwrap_or_default(), cure);
            return Ok(());
        }
    };
    report.good("rule file", named(&loaded));
    let environment = Environment::of_process(&url);
    let proxy = match &args.proxy {
        Some(proxy) => proxy.clone(),
        None => {
            environment.check(report);
            let own = || -> Result<String, Usage> {
                let login = login(&loaded.settings, None)?.unwrap_or_default();
                Ok(format!("http://{login}{}", reachable(loaded.settings.listen)))
            };
            environment.proxy.clone().map_or_else(own, Ok)?
        }
    };
    environment.check_node(report);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let probe = Probe::new(&proxy, &url, &loaded, global).context("--proxy")?;
    let reached = runtime.block_on(probe.check_proxy(report));
    runtime.block_on(probe.check_store(report));
    let rule = rule::check(&loaded, &url, report);
    if reached {
        runtime.block_on(probe.check_request(rule, report));
    }
    if let Some(rule) = rule {
        check_timeout(rule, args.timeout, report);
    }
    Ok(())
}

fn named(loaded: &Loaded) -> String {
    let rules = loaded.rules.as_slice().len();
    let plural = if rules == 1 { "" } else { "s" };
    match &loaded.path {
        Some(path) => format!("{}: {rules} rule{plural}", path.display()),
        None => "none here: using the built-in defaults".to_owned(),
    }
}

/// A held request sends no bytes. A client with a shorter timeout than the proxy gives up and loses
/// its place each time.
fn check_timeout(rule: &crate::rules::Rule, timeout: Option<Duration>, report: &mut Report) {
    let (name, longest) = (&rule.name, super::cooldown::span(rule.max_wait));
    match timeout {
        Some(timeout) if timeout <= rule.max_wait => report.bad(
            "time-out",
            format!(
                "the client gives up after {}, and rule `{name}` holds a request for up to \
                 {longest}: a client that gives up loses its place in the queue",
                super::cooldown::span(timeout)
            ),
            format!("raise the client's timeout above {longest}, or lower `max_wait`"),
        ),
        Some(_) => report.good("time-out", format!("longer than `max_wait` ({longest})")),
        None => report.note(
            "time-out",
            format!("rule `{name}` holds a request for up to {longest} without sending a byte"),
            "set the client's timeout above that; `--timeout TIME` checks it".to_owned(),
        ),
    }
}
