//! Precision and recall of the built-in signatures over a folder of saved responses, and what a
//! scan costs.
//!
//! `bench_detect DIR`: DIR has a `manifest.tsv` with the columns `file`, `verdict` (alternatives
//! separated by `|`), `status`, `headers` (`; ` between) and `kind`. Exits with 1 under a precision
//! of 0.995 or a recall of 0.97.

use std::{collections::BTreeMap, path::Path, process::ExitCode, sync::Arc, time::Instant};

use anyhow::Context;
use http::{HeaderMap, Method, StatusCode};
use tidegate::{
    classify::{BodyEnd, Classifier, Head, Reading, ScanLimits},
    explain::{self, Item, Options, Report, Source},
    rules::RuleSet,
    target::{Host, Scheme, Target},
};

/// Below these the run fails.
const LEAST_PRECISION: f64 = 0.995;
const LEAST_RECALL: f64 = 0.97;

/// How much is looked at, as by default in the rule file.
const LIMITS: ScanLimits = ScanLimits { bytes: 16 * 1024, error_bytes: 128 * 1024 };

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn main() -> anyhow::Result<ExitCode> {
    let folder = std::env::args().nth(1).context("usage: bench_detect DIR")?;
    let options = Options {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        method: Method::GET,
        url: None,
        rules: Arc::new(RuleSet::default()),
        limits: LIMITS,
    };
    let Report::Many { items, .. } = explain::run(&Source::Path(folder.clone().into()), &options)?
    else {
        anyhow::bail!("{folder} is no folder with a manifest.tsv");
    };
    anyhow::ensure!(!items.is_empty(), "{folder} has no responses");
    let tally = Tally::of(&items);
    tally.print();
    println!(
        "time per 64 KB page: {:.1} us (mean of the folder's own pages)",
        cost(&folder, &items)?
    );
    let good = tally.precision() >= LEAST_PRECISION && tally.recall() >= LEAST_RECALL;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Counts over all responses. A response is positive if its verdict is a block; where the folder
/// accepts both a block and `ok`, either is right and it is left out of the sums.
#[derive(Default)]
struct Tally {
    /// By expected verdict: right, missed (judged `ok`), another block.
    types: BTreeMap<String, (usize, usize, usize)>,
    blocks_found: usize,
    blocks_missed: usize,
    false_blocks: usize,
    mistakes: Vec<String>,
}

impl Tally {
    fn of(items: &[Item]) -> Self {
        let mut tally = Self::default();
        for item in items {
            tally.count(item, item.expected.as_deref().unwrap_or("ok"));
        }
        tally
    }

    fn count(&mut self, item: &Item, expected: &str) {
        let got = item.verdict.as_str();
        let right = expected.split('|').any(|word| word == got);
        let row = self.types.entry(expected.to_owned()).or_default();
        match (right, got) {
            (true, _) => row.0 += 1,
            (false, "ok") => row.1 += 1,
            (false, _) => row.2 += 1,
        }
        match (expected, got) {
            ("ok", "ok") => {}
            ("ok", _) => self.false_blocks += 1,
            (expected, _) if expected.contains("ok") => {}
            (_, "ok") => self.blocks_missed += 1,
            _ => self.blocks_found += 1,
        }
        if !right {
            let why = item.evidence.as_ref().map_or("", |evidence| evidence.signature.as_str());
            self.mistakes.push(format!(
                "  {}: expected {expected}, got {got} {why} ({} characters, decoys {:?})",
                item.name, item.visible_text, item.decoys
            ));
        }
    }

    fn precision(&self) -> f64 {
        share(self.blocks_found, self.blocks_found + self.false_blocks)
    }

    fn recall(&self) -> f64 {
        share(self.blocks_found, self.blocks_found + self.blocks_missed)
    }

    #[allow(clippy::print_stdout, reason = "the report is this program's output")]
    fn print(&self) {
        println!(
            "{:<26} {:>5} {:>6} {:>6} {:>7}",
            "expected", "right", "missed", "other", "recall"
        );
        for (expected, (right, missed, other)) in &self.types {
            let recall = share(*right, right + missed + other);
            println!("{expected:<26} {right:>5} {missed:>6} {other:>6} {recall:>7.3}");
        }
        if !self.mistakes.is_empty() {
            println!("mistakes:\n{}", self.mistakes.join("\n"));
        }
        println!(
            "blocks: {} found, {} missed, {} false: precision {:.4}, recall {:.4}",
            self.blocks_found,
            self.blocks_missed,
            self.false_blocks,
            self.precision(),
            self.recall()
        );
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// Microseconds that one scan takes, over the folder's own pages of at least 64 KB served with 200,
/// each cut to that: the mean in the best of some rounds, since everything else that runs makes a
/// round longer, never shorter.
fn cost(folder: &str, items: &[Item]) -> anyhow::Result<f64> {
    const PAGE: usize = 64 * 1024;
    const ROUNDS: usize = 50;
    let mut pages = Vec::new();
    for item in items.iter().filter(|item| item.status == 200) {
        let mut body = std::fs::read(Path::new(folder).join(&item.name))?;
        if body.len() >= PAGE {
            body.truncate(PAGE);
            pages.push(body);
        }
    }
    if pages.is_empty() {
        return Ok(f64::NAN);
    }
    let target = Target {
        scheme: Scheme::Https,
        host: Host::parse("site.example")?,
        port: 443,
        path: "/".into(),
    };
    let headers = HeaderMap::from_iter([
        (http::header::CONTENT_TYPE, "text/html; charset=utf-8".parse()?),
        (http::header::SERVER, "nginx".parse()?),
    ]);
    let head =
        Head { method: &Method::GET, target: &target, status: StatusCode::OK, headers: &headers };
    let classifier = Classifier::builtin();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for page in &pages {
            if let Reading::Scan(mut scan) = classifier.read(head, LIMITS) {
                for chunk in page.chunks(16 * 1024) {
                    if !scan.push(chunk) {
                        break;
                    }
                }
                std::hint::black_box(scan.finish(BodyEnd::Complete));
            }
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best * 1e6 / pages.len() as f64)
}
