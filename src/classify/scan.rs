//! A body being looked at.

use std::sync::Arc;

use http::HeaderValue;

use super::{
    BodyEnd, Ground,
    charset::{Charset, ROOM},
    classifier::Classifier,
    compiled::{Compiled, Marks, is_refusal},
    decode::{Coding, Decoder},
    page::{Page, Title},
    signature::Action,
};
use crate::verdict::{Confidence, Evidence, Judgement, Verdict};

/// Decoded bytes between two looks at whether anything more can matter.
const STRIDE: usize = 4 * 1024;

/// Longest body that can be a blank page: markup without anything in it is shorter.
const BLANK_BYTES: usize = 512;

/// Decoded bytes of a page that are kept unread: until there are more, no need to read them may
/// show, but then it is time to see whether anything more can matter.
const KEPT: usize = 16 * 1024;

/// Near misses that are told.
const MAX_NEAR: usize = 12;

/// What a scan begins with.
pub(super) struct Start<'a> {
    pub(super) classifier: Arc<Classifier>,
    pub(super) ground: Ground,
    /// Signatures that ask something of the head and get it, by number.
    pub(super) asking: Vec<usize>,
    /// How many of those come into question that ask nothing of a head.
    pub(super) free: usize,
    /// What the head decided, unless a candidate says otherwise.
    pub(super) settled: Option<Judgement>,
    pub(super) may_be_blank: bool,
    pub(super) codings: Vec<Coding>,
    pub(super) content_type: Option<&'a HeaderValue>,
    /// By the head.
    pub(super) is_html: bool,
    /// Decoded bytes to look at.
    pub(super) limit: usize,
}

/// A body being looked at: takes the bytes as they are on the wire, decodes a copy.
#[derive(Debug)]
pub struct Scan {
    decoder: Decoder,
    text: Text,
}

/// The decoded side of a scan.
#[derive(Debug)]
struct Text {
    classifier: Arc<Classifier>,
    ground: Ground,
    /// Signatures that may match. Until anything is read, those that ask something of the head.
    candidates: Vec<usize>,
    /// How many there are beside.
    free: usize,
    settled: Option<Judgement>,
    may_be_blank: bool,
    is_html: bool,
    charset: Charset,
    /// Decoded bytes, as long as it may be that nobody has to read them.
    kept: Option<Vec<u8>>,
    /// All characters so far: within the limit, and no longer than the answer waits.
    source: String,
    /// How much of them the page has taken.
    taken: usize,
    /// What was found; there from the first characters on.
    page: Option<Page>,
    /// Bytes that may still be decoded.
    left: usize,
    decoded: usize,
    /// The coding is broken: what was found counts, what was not found says nothing.
    unreadable: bool,
    done: bool,
    /// Characters of visible text after which no candidate can match any more; `None` without
    /// candidates, and before the first characters.
    most_text: Option<usize>,
    title_known: bool,
}

/// What a scan found beside its verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Signatures of which some conditions held.
    pub near: Vec<NearMiss>,
    /// Characters of visible text (an East Asian character counts as two).
    pub visible_text: usize,
    /// Decoded bytes that were looked at: no more than could matter.
    pub bytes: usize,
}

/// A signature of which some conditions held.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NearMiss {
    /// Its id.
    pub signature: String,
    /// What it would have meant.
    pub verdict: Verdict,
    /// What was missing, for a person.
    pub missing: String,
}

impl Scan {
    pub(super) fn new(start: Start<'_>) -> Self {
        let charset = Charset::new(start.content_type);
        let glance = start.classifier.glance.as_ref();
        let may_be_plain = start.is_html
            && !is_refusal(start.ground.status)
            && glance.is_some_and(|glance| glance.knows(&start.asking));
        let mut text = Text {
            kept: may_be_plain.then(Vec::new),
            charset,
            classifier: start.classifier,
            ground: start.ground,
            candidates: start.asking,
            free: start.free,
            settled: start.settled,
            may_be_blank: start.may_be_blank,
            is_html: start.is_html,
            source: String::new(),
            taken: 0,
            page: None,
            left: start.limit,
            decoded: 0,
            unreadable: false,
            done: false,
            most_text: None,
            title_known: false,
        };
        if text.kept.is_none() {
            text.gather();
        }
        Self { decoder: Decoder::new(start.codings), text }
    }

    /// Looks at the next bytes as received (still encoded). False once nothing more can matter.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Self { decoder, text } = self;
        if !text.done && decoder.push(bytes, &mut |piece| text.push(piece)).is_err() {
            text.break_off();
        }
        !text.done
    }

    /// The verdict.
    #[must_use]
    pub fn finish(self, end: BodyEnd) -> Judgement {
        self.conclude(end, None)
    }

    /// The verdict, and what else was found on the way.
    #[must_use]
    pub fn finish_with_trace(self, end: BodyEnd) -> (Judgement, Trace) {
        let mut trace = Trace::default();
        (self.conclude(end, Some(&mut trace)), trace)
    }

    fn conclude(mut self, end: BodyEnd, trace: Option<&mut Trace>) -> Judgement {
        let Self { decoder, text } = &mut self;
        if !text.done && decoder.finish(&mut |piece| text.push(piece)).is_err() {
            text.break_off();
        }
        text.unreadable |= !decoder.is_complete();
        self.text.finish(end, trace)
    }
}

impl Text {
    /// Takes decoded bytes; false once nothing more can matter.
    fn push(&mut self, bytes: &[u8]) -> bool {
        if let Some(kept) = &mut self.kept {
            let bytes = &bytes[..bytes.len().min(self.left - kept.len())];
            if kept.len() + bytes.len() <= KEPT {
                kept.extend_from_slice(bytes);
                self.done = kept.len() == self.left;
                return !self.done;
            }
        }
        self.read_kept();
        !self.done && self.take(bytes)
    }

    /// Reads what was kept unread.
    fn read_kept(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.gather();
            self.done = false;
            self.take(&kept);
        }
    }

    /// Names all signatures that may match.
    fn gather(&mut self) {
        let classifier = &self.classifier;
        let free = &classifier.heads.free()[..self.free];
        let suits = |number: &usize| classifier.signatures[*number].suits(self.ground.status);
        self.candidates.extend(free.iter().copied().filter(suits));
        self.candidates.sort_unstable();
    }

    /// Whether what was kept is a page that has no mark, so that no signature can match it.
    fn is_plain(&self, kept: &[u8]) -> bool {
        let begin = kept.strip_prefix(b"\xef\xbb\xbf").unwrap_or(kept).trim_ascii_start();
        let glance = self.classifier.glance.as_ref();
        begin.first() == Some(&b'<')
            && self.charset.is_utf_8(kept)
            && glance.is_some_and(|glance| !glance.may_match(kept))
    }

    /// Whether a page that has no mark has anything in it, so that it is not blank: no more of it is
    /// read than shows that.
    fn shows(&self, kept: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(kept) else { return false };
        let mut page = Page::new(begins_as_html(text, self.is_html));
        text.split_inclusive('>').any(|piece| {
            page.push(piece);
            !page.is_html() || page.has_anything()
        })
    }

    /// Reads decoded bytes; false once nothing more can matter.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.source.reserve(bytes.len().min(self.left) + ROOM);
        for stride in bytes.chunks(STRIDE) {
            let stride = &stride[..stride.len().min(self.left)];
            self.left -= stride.len();
            self.decoded += stride.len();
            self.charset.push(stride, &mut self.source);
            self.read();
            self.look();
            if self.done {
                return false;
            }
        }
        true
    }

    /// Hands characters to the page, which begins with the first of them.
    fn read(&mut self) {
        let new = &self.source[self.taken..];
        self.taken = self.source.len();
        if !new.is_empty() {
            let begin = || Page::new(begins_as_html(new, self.is_html));
            self.page.get_or_insert_with(begin).push(new);
        }
    }

    /// Broken data: no reason to read on.
    fn break_off(&mut self) {
        self.unreadable = true;
        self.done = true;
    }

    /// Decides whether anything more can matter.
    fn look(&mut self) {
        self.done = self.left == 0;
        let Some(page) = &self.page else { return };
        let title_known = matches!(page.title, Title::Known(_));
        if self.most_text.is_none() || title_known != self.title_known {
            self.title_known = title_known;
            let classifier = &self.classifier;
            self.candidates
                .retain(|number| classifier.signatures[*number].applies_to(page.is_html()));
            let most = |number: &usize| {
                classifier.signatures[*number].most_text(self.ground.status, &page.title)
            };
            self.most_text = self.candidates.iter().map(most).max();
        }
        self.may_be_blank &= page.is_html()
            && self.decoded <= BLANK_BYTES
            && !page.has_content
            && page.visible.count() == 0;
        let is_open = self.most_text.is_some_and(|most| page.visible.count() <= most);
        self.done |= !is_open && !self.may_be_blank;
    }

    fn finish(mut self, end: BodyEnd, mut trace: Option<&mut Trace>) -> Judgement {
        let kept = self.kept.as_ref().filter(|kept| trace.is_none() && self.is_plain(kept));
        let is_short = |kept: &Vec<u8>| self.may_be_blank && kept.len() <= BLANK_BYTES;
        if let Some(is_known) = kept.map(|kept| !is_short(kept) || self.shows(kept)) {
            if is_known {
                let settled = self.settled.take();
                return settled.unwrap_or_else(|| self.ground.without_mark(end));
            }
            self.candidates.clear();
            self.free = 0;
        }
        self.read_kept();
        self.charset.finish(&mut self.source);
        self.read();
        let page = self.page.take().unwrap_or_else(|| Page::new(self.is_html));
        if let Some(trace) = &mut trace {
            trace.visible_text = page.visible.count();
            trace.bytes = self.decoded;
        }
        let (decided, decoys, logged) = self.ask(&page, trace);
        let mut judgement = match decided.or_else(|| self.settled.take()) {
            Some(judgement) => judgement,
            None => self.without_mark(&page, end),
        };
        judgement.decoys = decoys;
        judgement.logged.extend(logged);
        judgement
    }

    /// Asks all candidates: the first that matches decides.
    fn ask(
        &self,
        page: &Page,
        mut trace: Option<&mut Trace>,
    ) -> (Option<Judgement>, Vec<Arc<str>>, Vec<Arc<str>>) {
        let (mut decided, mut decoys, mut logged) = (None, Vec::new(), Vec::new());
        if self.candidates.is_empty() {
            return (decided, decoys, logged);
        }
        let findings = page.search(&self.classifier, &self.source, trace.is_some());
        let only_title = !findings.has_any();
        if only_title && page.title().is_empty() {
            return (decided, decoys, logged);
        }
        for number in &self.candidates {
            let signature = &self.classifier.signatures[*number];
            if !signature.applies_to(page.is_html()) || only_title && !signature.wants_title() {
                continue;
            }
            let name = || Arc::clone(&signature.source.name);
            let visible = page.visible.count();
            match signature.marks(&findings) {
                Marks::None => {}
                Marks::Some(missing) => {
                    if let Some(trace) = &mut trace {
                        trace.add(signature, signature.describe(missing));
                    }
                }
                Marks::All(_) if visible > signature.most_text(self.ground.status, &page.title) => {
                    decoys.push(name());
                    if let Some(trace) = &mut trace {
                        let why = format!("the shape of a wall: {visible} characters of text");
                        trace.add(signature, why);
                    }
                }
                Marks::All(_) if signature.source.action == Action::Log => logged.push(name()),
                Marks::All(found) if decided.is_none() => {
                    let evidence = signature.evidence(found);
                    decided = Some(self.ground.decided(&signature.source, evidence));
                }
                Marks::All(_) => {}
            }
        }
        (decided, decoys, logged)
    }

    /// What is left where no signature matches.
    fn without_mark(&self, page: &Page, end: BodyEnd) -> Judgement {
        let without = self.ground.without_mark(end);
        let blank = self.may_be_blank
            && without.verdict == Verdict::Ok
            && end == BodyEnd::Complete
            && !self.unreadable
            && page.is_html()
            && self.decoded <= BLANK_BYTES
            && !page.has_anything();
        if !blank {
            return without;
        }
        let evidence = Evidence {
            signature: Arc::from("blank-page"),
            vendor: None,
            place: "body".to_owned(),
            excerpt: format!("{} bytes of HTML and nothing in it", self.decoded),
        };
        self.ground.judgement(Verdict::BlankPage, Confidence::Low, Some(evidence))
    }
}

impl Trace {
    fn add(&mut self, signature: &Compiled, missing: String) {
        if self.near.len() < MAX_NEAR {
            let (name, verdict) = (signature.source.name.to_string(), signature.source.verdict);
            self.near.push(NearMiss { signature: name, verdict, missing });
        }
    }
}

/// Whether a body is HTML: its first characters know better than its head.
fn begins_as_html(text: &str, declared: bool) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let begins =
        |start: &str| text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start));
    if declared {
        return !text.starts_with(['{', '[']);
    }
    begins("<!doctype html")
        || begins("<html")
        || begins("<head")
        || (begins("<?xml") && text.get(..text.len().min(1024)).is_some_and(is_xhtml))
}

fn is_xhtml(start: &str) -> bool {
    start.contains("<html") || start.contains("<!DOCTYPE html")
}
