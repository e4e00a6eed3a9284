//! Pages that look like walls but match no signature. They are counted, reported once per site and hour, and kept on
//! request. If all pages of a site suddenly become the same such page, it is a block.
//!
//! A few numbers are kept per site, for at most [`MAX_SITES`] sites.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    classify::verdict::{Confidence, Evidence, Judgement, Suspect, Verdict},
    gate::Entry,
    observability::event::{Event, Events, clean},
    rules::{
        Rule,
        settings::{Inspect, Keep},
    },
    runtime::clock,
    target::{Host, Target},
};

/// Number of remembered sites: at some hundred bytes each, about a megabyte.
const MAX_SITES: usize = 4096;

/// How often a site's suspects are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(3600);

/// After this many different URLs in a row with the same body, a suspect is a block.
const SAME: usize = 4;

/// Number of pages after which a site's usual length is known.
const KNOWN: u32 = 5;

/// A wall is shorter than the site's usual page by at least this factor.
const SHORTER: f64 = 3.0;

/// Bytes of a page that are kept.
const MAX_KEPT: usize = 128 * 1024;

/// The state of all sites.
#[derive(Debug)]
pub(crate) struct Suspects {
    events: Arc<Events>,
    hasher: RandomState,
    sites: Mutex<HashMap<Host, SiteHistory>>,
}

/// The state of one site.
#[derive(Debug, Default)]
struct SiteHistory {
    /// The number of ordinary pages, and their mean length.
    pages: u32,
    usual: f64,
    /// Its last body if that was a suspect, and the URLs that returned it.
    body: u64,
    urls: [u64; SAME],
    count: usize,
    reported: Option<clock::Instant>,
}

impl Suspects {
    pub(crate) fn new(events: Arc<Events>) -> Arc<Self> {
        let (hasher, sites) = (RandomState::new(), Mutex::default());
        Arc::new(Self { events, hasher, sites })
    }

    /// Examines a judged response before it is reported.
    pub(crate) fn judge(
        &self,
        entry: &Entry,
        target: &Target,
        inspect: &Inspect,
        judgement: &mut Judgement,
    ) {
        if judgement.verdict != Verdict::Ok || judgement.neutral || judgement.bytes == 0 {
            return;
        }
        let Some(suspect) = judgement.suspect.take() else {
            if inspect.same_page {
                self.with(&target.host, |site| site.learn(judgement.bytes));
            }
            return;
        };
        entry.metrics.suspects.inc();
        let body = self.hasher.hash_one(&suspect.page);
        let url = self.hasher.hash_one(&target.path);
        let (same, report) = self.with(&target.host, |site| {
            (site.suspect(body, url, judgement.bytes), site.is_report_due())
        });
        if report {
            self.report(&entry.rule, target, judgement.status, &suspect);
            if let Some(keep) = &inspect.keep {
                keep_in_background(keep.clone(), target, judgement.status, *suspect);
            }
        }
        if same && inspect.same_page {
            judgement.verdict = Verdict::Forbidden;
            judgement.confidence = Confidence::Low;
            judgement.evidence = Some(Box::new(Evidence {
                signature: Arc::from("same-page"),
                vendor: None,
                place: "body".to_owned(),
                excerpt: format!("{SAME} different URLs in a row have this one short body"),
            }));
        }
    }

    fn with<T>(&self, host: &Host, judge: impl FnOnce(&mut SiteHistory) -> T) -> T {
        let mut sites = self.sites.lock();
        if let Some(site) = sites.get_mut(host) {
            return judge(site);
        }
        if sites.len() >= MAX_SITES {
            sites.clear();
        }
        judge(sites.entry(host.clone()).or_default())
    }

    fn report(&self, rule: &Rule, target: &Target, status: Option<u16>, suspect: &Suspect) {
        let evidence = &suspect.evidence;
        self.events.emit(Event::Warned {
            what: format!(
                "{} (rule `{}`) answered with a page that looks like a wall and matches no signature: \
                 status {}, near `{}`, {}: {}",
                target.host,
                rule.name,
                status.unwrap_or(0),
                evidence.signature,
                evidence.place,
                clean(&evidence.excerpt)
            ),
        });
    }
}

impl SiteHistory {
    /// Records an ordinary page of this many bytes.
    fn learn(&mut self, bytes: usize) {
        self.count = 0;
        self.pages = self.pages.saturating_add(1);
        self.usual += (bytes as f64 - self.usual) / f64::from(self.pages.min(50));
    }

    /// Records a suspect. Returns whether it is one body for many URLs and shorter than the site's
    /// usual page.
    fn suspect(&mut self, body: u64, url: u64, bytes: usize) -> bool {
        if self.count == 0 || self.body != body {
            self.body = body;
            self.count = 0;
        }
        if self.count < SAME && !self.urls[..self.count].contains(&url) {
            self.urls[self.count] = url;
            self.count += 1;
        }
        let is_short = bytes as f64 * SHORTER <= self.usual;
        self.count >= SAME && self.pages >= KNOWN && is_short
    }

    /// Whether a report is due.
    fn is_report_due(&mut self) -> bool {
        let now = clock::now();
        let due =
            self.reported.is_none_or(|reported| now.duration_since(reported) >= REPORT_INTERVAL);
        if due {
            self.reported = Some(now);
        }
        due
    }
}

/// Writes a suspect to the folder of suspects, without waiting for it.
fn keep_in_background(keep: Keep, target: &Target, status: Option<u16>, suspect: Suspect) {
    let host: String = target.host.to_string();
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn_blocking(move || {
            if let Err(error) = write(&keep, &host, status, &suspect) {
                tracing::warn!(%error, folder = %keep.folder.display(), "cannot save a suspect \
                                                                         page");
            }
        });
    }
}

/// A raw response, as `tidegate explain` reads it.
fn write(keep: &Keep, host: &str, status: Option<u16>, suspect: &Suspect) -> std::io::Result<()> {
    std::fs::create_dir_all(&keep.folder)?;
    let mut kept = kept(&keep.folder)?;
    kept.sort();
    let surplus = (kept.len() + 1).saturating_sub(keep.most);
    for old in kept.iter().take(surplus) {
        std::fs::remove_file(old)?;
    }
    let name: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
    let path = keep.folder.join(format!("{:013}-{name}.http", clock::unix_ms()));
    let mut end = suspect.page.len().min(MAX_KEPT);
    while !suspect.page.is_char_boundary(end) {
        end -= 1;
    }
    let mut file = std::fs::File::options().write(true).create_new(true).open(path)?;
    let status = status.unwrap_or(200);
    write!(file, "HTTP/1.1 {status} \r\ncontent-type: text/html; charset=utf-8\r\n\r\n")?;
    file.write_all(&suspect.page.as_bytes()[..end])
}

/// The suspects in a folder.
fn kept(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    Ok(files.filter(|path| path.extension().is_some_and(|kind| kind == "http")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_that_answers_many_urls_with_one_short_page_is_detected() {
        let mut site = SiteHistory::default();
        (0..10).for_each(|_| site.learn(9_000));
        let same: Vec<bool> = (0..5).map(|url| site.suspect(7, url, 1_000)).collect();
        assert_eq!(same, [false, false, false, true, true]);
        site.learn(9_000);
        assert!(!site.suspect(7, 1, 1_000), "an ordinary page came between");
        assert!((0..9).all(|_| !site.suspect(7, 1, 1_000)), "one URL says nothing");
        assert!((2..9).all(|url| !site.suspect(url, url, 1_000)), "each has another body");
        assert!((20..29).all(|url| !site.suspect(8, url, 8_000)), "as long as usual");
        let mut new = SiteHistory::default();
        assert!((0..9).all(|url| !new.suspect(7, url, 10)), "nothing is known of the site");
    }

    #[test]
    fn a_folder_of_suspects_keeps_the_newest_and_explain_reads_them() {
        let folder = std::env::temp_dir().join(format!("tidegate-suspects-{}", fastrand::u64(..)));
        let keep = Keep { folder: folder.clone(), most: 3 };
        let suspect = |page: &str| Suspect {
            evidence: Evidence {
                signature: Arc::from("human-check"),
                vendor: None,
                place: "title".to_owned(),
                excerpt: String::new(),
            },
            page: page.to_owned(),
        };
        for number in 0..6 {
            let host = format!("site{number}.example");
            write(&keep, &host, Some(200), &suspect("<title>Wall</title>")).expect("it is written");
            assert!(kept(&folder).expect("the folder is there").len() <= 3);
        }
        let kept = kept(&folder).expect("the folder is there");
        let raw = std::fs::read_to_string(&kept[0]).expect("it is text");
        assert!(raw.starts_with("HTTP/1.1 200 ") && raw.ends_with("<title>Wall</title>"), "{raw}");
        std::fs::remove_dir_all(folder).expect("it was made here");
    }
}
