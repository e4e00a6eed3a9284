//! Precision and recall of the built-in signatures over a folder of saved responses, by kind and by
//! language; the differences from other signatures; and the cost of a scan.
//!
//! `bench_detect DIR [--status N] [--since FILE] [--without VENDOR]`: DIR has a `manifest.tsv` with the columns
//! `file`, `verdict` (alternatives separated by `|`), `status`, `headers` (separated by `; `),
//! `kind` and optionally `language`. `--status` serves every wall with that status, as many sites
//! do with 200. `--since` names the `signatures.yaml` of a release and lists the responses that it
//! judges differently. `--without` switches off the signatures of one vendor, to see which of its
//! walls the rest still finds. Exits with 1 if precision is below 0.995 or recall below 0.97.
//!
//! Then it judges the folder again without the signatures of single products or sites. This shows
//! what the families of `config/walls/words.yaml` and the status find alone, which is the measure
//! for unknown walls.

use std::{collections::BTreeMap, path::Path, process::ExitCode, sync::Arc, time::Instant};

use anyhow::Context;
use http::{HeaderMap, Method, StatusCode};
use tidegate::{
    classify::{
        BodyEnd, Classifier, Head, Reading, ScanLimits, Signature, Switches, builtin_signatures,
    },
    explain::{self, Item, Options, Report, Source},
    rules::RuleSet,
    target::{Host, Scheme, Target},
};

/// Below these the run fails.
const LEAST_PRECISION: f64 = 0.995;
const LEAST_RECALL: f64 = 0.97;

/// The defaults of the rule file.
const LIMITS: ScanLimits = ScanLimits { bytes: 16 * 1024, error_bytes: 128 * 1024 };

/// The command line.
struct Args {
    folder: String,
    status: Option<u16>,
    since: Option<String>,
    without: Option<String>,
}

#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn main() -> anyhow::Result<ExitCode> {
    let args = Args::read()?;
    let manifest = Manifest::read(&args.folder, args.status)?;
    let vendor = args.without.as_deref();
    let classifier =
        without(|signature| vendor.is_some() && signature.vendor.as_deref() == vendor)?;
    let items = judge(manifest.folder.path(), classifier)?;
    anyhow::ensure!(!items.is_empty(), "{} has no responses", args.folder);
    let tally = Tally::of(&items, &manifest);
    tally.print();
    if let Some(since) = &args.since {
        let text =
            std::fs::read_to_string(since).with_context(|| format!("cannot read {since}"))?;
        let before = Classifier::of_file(&text).map_err(|why| anyhow::anyhow!("{since}: {why}"))?;
        print_changes(&judge(manifest.folder.path(), before)?, &items);
    }
    print_unknown(&args)?;
    let cost = cost(manifest.folder.path(), &items)?;
    println!("time per 64 KB page: {cost:.1} us (mean of the folder's own pages)");
    let good = tally.precision() >= LEAST_PRECISION && tally.recall() >= LEAST_RECALL;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Args {
    fn read() -> anyhow::Result<Self> {
        const USAGE: &str =
            "usage: bench_detect DIR [--status N] [--since FILE] [--without VENDOR]";
        let mut words = std::env::args().skip(1);
        let folder = words.next().context(USAGE)?;
        let (mut status, mut since, mut without) = (None, None, None);
        while let Some(word) = words.next() {
            let value = words.next().context(USAGE)?;
            match &*word {
                "--status" => status = Some(value.parse().context(USAGE)?),
                "--since" => since = Some(value),
                "--without" => without = Some(value),
                _ => anyhow::bail!(USAGE),
            }
        }
        Ok(Self { folder, status, since, without })
    }
}

/// The built-in signatures except those that `is_off` names.
fn without(is_off: impl Fn(&Signature) -> bool) -> anyhow::Result<Arc<Classifier>> {
    let off = builtin_signatures().into_iter().filter(|signature| is_off(signature));
    let off = Switches { off: off.map(|signature| signature.name).collect(), log: Vec::new() };
    Ok(Classifier::with(Vec::new(), &off)?)
}

/// Judges all responses of a folder.
fn judge(folder: &Path, builtin: Arc<Classifier>) -> anyhow::Result<Vec<Item>> {
    let options = Options {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        method: Method::GET,
        url: None,
        rules: Arc::new(RuleSet::default()),
        limits: LIMITS,
        builtin,
    };
    match explain::run(&Source::Path(folder.to_owned()), &options)? {
        Report::Many { items, .. } => Ok(items),
        Report::One(_) => {
            anyhow::bail!("{} is not a folder that contains a manifest.tsv", folder.display())
        }
    }
}

/// The folder, as the command line wants it served, and the rest of its manifest.
struct Manifest {
    /// A copy of the manifest with links to the files.
    folder: tempfile::TempDir,
    /// Kind and language by file.
    about: BTreeMap<String, (String, String)>,
}

impl Manifest {
    fn read(folder: &str, status: Option<u16>) -> anyhow::Result<Self> {
        let source = std::fs::canonicalize(folder)?;
        let text = std::fs::read_to_string(source.join("manifest.tsv"))
            .with_context(|| format!("{folder} has no manifest.tsv"))?;
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or("").split('\t').collect();
        let column = |name: &str| names.iter().position(|known| *known == name);
        let folder = tempfile::tempdir()?;
        let mut written = format!("{}\n", names.join("\t"));
        let mut about = BTreeMap::new();
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let mut fields: Vec<&str> = line.split('\t').collect();
            let get = |name| column(name).and_then(|at| fields.get(at)).copied().unwrap_or("");
            let (file, verdict) = (get("file"), get("verdict"));
            let body =
                std::fs::read(source.join(file)).with_context(|| format!("cannot read {file}"))?;
            let language = match get("language") {
                "" => language(&body),
                named => named.to_owned(),
            };
            let kind = if get("kind").is_empty() { verdict } else { get("kind") };
            about.insert(file.to_owned(), (kind.to_owned(), language));
            let copy = folder.path().join(file);
            std::fs::create_dir_all(copy.parent().context("a file lies in a folder")?)?;
            std::fs::write(copy, body)?;
            let status = status.map(|status| status.to_string());
            let is_wall = !verdict.split('|').any(|word| word == "ok") && verdict != "blank_page";
            if let (Some(status), Some(at), true) = (&status, column("status"), is_wall) {
                fields[at] = status;
            }
            written.push_str(&fields.join("\t"));
            written.push('\n');
        }
        std::fs::write(folder.path().join("manifest.tsv"), written)?;
        Ok(Self { folder, about })
    }
}

/// The language of a page: the declared one, otherwise that of its script.
fn language(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(16 * 1024)]);
    let small = text.to_ascii_lowercase();
    let named = small.find("<html").and_then(|at| {
        let tag = &small[at..at + small[at..].find('>')?];
        let value = tag[tag.find("lang=")? + 5..].trim_start_matches(['"', '\'']);
        let code: String = value.chars().take_while(char::is_ascii_alphabetic).collect();
        (2..=3).contains(&code.len()).then_some(code)
    });
    let has =
        |first: char, last: char| text.chars().filter(|c| (first..=last).contains(c)).count() > 10;
    named.unwrap_or_else(|| {
        let scripts = [
            ("ja", '\u{3041}', '\u{30ff}'),
            ("ko", '\u{ac00}', '\u{d7a3}'),
            ("zh", '\u{4e00}', '\u{9fff}'),
            ("ru", '\u{410}', '\u{44f}'),
            ("ar", '\u{620}', '\u{6ff}'),
        ];
        let known = scripts.iter().find(|(_, first, last)| has(*first, *last));
        known.map_or("?", |(code, _, _)| code).to_owned()
    })
}

/// Responses of one kind or language.
#[derive(Default)]
struct Row {
    right: usize,
    missed: usize,
    /// Judged as a block, but not the expected one.
    other: usize,
    /// Judged as a block although only `ok` is right.
    false_blocks: usize,
}

/// Counts over all responses. A response is positive if its verdict is a block. If the folder
/// accepts both a block and `ok`, the response is left out of the totals.
#[derive(Default)]
struct Tally {
    verdicts: BTreeMap<String, Row>,
    kinds: BTreeMap<String, Row>,
    languages: BTreeMap<String, Row>,
    blocks_found: usize,
    right_word: usize,
    blocks_missed: usize,
    false_blocks: usize,
    mistakes: Vec<String>,
}

impl Tally {
    fn of(items: &[Item], manifest: &Manifest) -> Self {
        let mut tally = Self::default();
        for item in items {
            let (kind, language) = manifest.about.get(&item.name).cloned().unwrap_or_default();
            tally.count(item, &kind, &language);
        }
        tally
    }

    fn count(&mut self, item: &Item, kind: &str, language: &str) {
        let expected = item.expected.as_deref().unwrap_or("ok");
        let got = item.verdict.as_str();
        let right = expected.split('|').any(|word| word == got);
        let rows = [
            self.verdicts.entry(expected.to_owned()).or_default(),
            self.kinds.entry(kind.to_owned()).or_default(),
            self.languages.entry(language.to_owned()).or_default(),
        ];
        for row in rows {
            match (right, got) {
                (true, _) => row.right += 1,
                (false, "ok") => row.missed += 1,
                (false, _) if expected == "ok" => row.false_blocks += 1,
                (false, _) => row.other += 1,
            }
        }
        match (expected, got) {
            ("ok", "ok") => {}
            ("ok", _) => self.false_blocks += 1,
            (expected, _) if expected.contains("ok") => {}
            (_, "ok") => self.blocks_missed += 1,
            _ => {
                self.blocks_found += 1;
                self.right_word += usize::from(right);
            }
        }
        if !right {
            let why = item.evidence.as_ref().map_or("", |evidence| &*evidence.signature);
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
        for (name, rows) in
            [("expected", &self.verdicts), ("kind", &self.kinds), ("language", &self.languages)]
        {
            println!(
                "{name:<40} {:>5} {:>6} {:>6} {:>6} {:>6}",
                "right", "missed", "other", "false", "share"
            );
            for (value, row) in rows {
                let all = row.right + row.missed + row.other + row.false_blocks;
                println!(
                    "{value:<40} {:>5} {:>6} {:>6} {:>6} {:>6.3}",
                    row.right,
                    row.missed,
                    row.other,
                    row.false_blocks,
                    share(row.right, all)
                );
            }
            println!();
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
        let walls = self.blocks_found + self.blocks_missed;
        for (name, part, whole) in [
            ("precision", self.blocks_found, self.blocks_found + self.false_blocks),
            ("recall", self.blocks_found, walls),
            ("right word", self.right_word, self.blocks_found),
        ] {
            let (low, high) = interval(part, whole);
            println!("{name} {:.4}, 95 % interval {low:.4} to {high:.4}", share(part, whole));
        }
    }
}

/// What the families and the status find without signatures of products: as served, and under 200.
#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn print_unknown(args: &Args) -> anyhow::Result<()> {
    let families = without(|signature| signature.family.is_none())?;
    let mut found: [Unknown; 2] = Default::default();
    for (found, status) in found.iter_mut().zip([None, Some(200)]) {
        let manifest = Manifest::read(&args.folder, status)?;
        for item in judge(manifest.folder.path(), Arc::clone(&families))? {
            let (kind, language) = manifest.about.get(&item.name).cloned().unwrap_or_default();
            found.count(&item, kind, language);
        }
    }
    let [served, replayed] = &found;
    for (name, served, replayed) in [
        ("kind as if unknown", &served.kinds, &replayed.kinds),
        ("language, as if unknown", &served.languages, &replayed.languages),
    ] {
        println!("\n{name:<40} {:>5} {:>10} {:>10}", "walls", "as served", "under 200");
        for (value, (part, whole)) in served {
            let under = replayed.get(value).map_or(0, |(part, _)| *part);
            println!("{value:<40} {whole:>5} {part:>10} {under:>10}");
        }
    }
    for (name, found) in [("as served", served), ("under 200", replayed)] {
        let (low, high) = interval(found.found, found.walls);
        println!(
            "unknown walls {name}: {} of {} found, recall {:.4}, 95 % interval {low:.4} to {high:.4}, {} by status \
             alone, {} with the right word, {} false blocks",
            found.found,
            found.walls,
            share(found.found, found.walls),
            found.by_status,
            found.right_word,
            found.false_blocks
        );
        println!("  missed {name}: {}", found.missed.join(" "));
    }
    Ok(())
}

/// Walls that are found without a signature of their own.
#[derive(Default)]
struct Unknown {
    /// Found and total, by kind and by language.
    kinds: BTreeMap<String, (usize, usize)>,
    languages: BTreeMap<String, (usize, usize)>,
    found: usize,
    walls: usize,
    by_status: usize,
    right_word: usize,
    false_blocks: usize,
    missed: Vec<String>,
}

impl Unknown {
    fn count(&mut self, item: &Item, kind: String, language: String) {
        let expected = item.expected.as_deref().unwrap_or("ok");
        let got = item.verdict.as_str();
        if expected == "ok" {
            self.false_blocks += usize::from(got != "ok");
        }
        if expected.split('|').any(|word| word == "ok") || expected == "blank_page" {
            return;
        }
        let is_found = got != "ok";
        for row in
            [self.kinds.entry(kind).or_default(), self.languages.entry(language).or_default()]
        {
            row.0 += usize::from(is_found);
            row.1 += 1;
        }
        self.walls += 1;
        self.found += usize::from(is_found);
        self.right_word += usize::from(expected.split('|').any(|word| word == got));
        let evidence = item.evidence.as_ref();
        let by_status = evidence.is_some_and(|found| found.signature.starts_with("status-"));
        self.by_status += usize::from(by_status);
        if !is_found {
            self.missed.push(item.name.clone());
        }
    }
}

/// Responses that other signatures judge differently.
#[allow(clippy::print_stdout, reason = "the report is this program's output")]
fn print_changes(before: &[Item], now: &[Item]) {
    let changed = before.iter().zip(now).filter(|(one, other)| one.verdict != other.verdict);
    let mut count = 0;
    for (one, other) in changed {
        let expected = other.expected.as_deref().unwrap_or("ok");
        println!(
            "changed: {}: {} -> {} (expected {expected})",
            one.name, one.verdict, other.verdict
        );
        count += 1;
    }
    println!("changed against the other signatures: {count} of {}", now.len());
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// Wilson's interval of 95 % for a share.
fn interval(part: usize, whole: usize) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    if whole == 0 {
        return (0.0, 1.0);
    }
    let (share, count) = (part as f64 / whole as f64, whole as f64);
    let scale = 1.0 + Z * Z / count;
    let middle = (share + Z * Z / (2.0 * count)) / scale;
    let half = Z / scale * (share * (1.0 - share) / count + Z * Z / (4.0 * count * count)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

/// Microseconds per scan, over the folder's own pages of at least 64 KB with status 200, each cut
/// to 64 KB. The mean of the fastest round, because other load only makes a round longer.
fn cost(folder: &Path, items: &[Item]) -> anyhow::Result<f64> {
    const PAGE: usize = 64 * 1024;
    const ROUNDS: usize = 50;
    let mut pages = Vec::new();
    for item in items.iter().filter(|item| item.status == 200) {
        let mut body = std::fs::read(folder.join(&item.name))?;
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
        server: None,
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
