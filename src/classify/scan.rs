//! A body being looked at.

mod answers;
mod spare;

use std::sync::Arc;

use http::HeaderValue;

use self::spare::Spare;
use super::{
    BodyEnd, Ground,
    charset::{Charset, ROOM},
    classifier::Classifier,
    decode::{Coding, Decoder, Encoded},
    head::{is_origin_fault, is_refusal},
    page::{Page, Title, begins_as_html, shows},
    structure::has_many_links,
    trace::Trace,
};
use crate::classify::verdict::{Confidence, Evidence, Judgement, Suspect, Verdict};

/// Decoded bytes between two looks at whether anything more can matter.
const STRIDE: usize = 4 * 1024;
/// Longest body that can be a blank page: markup without anything in it is shorter.
const BLANK_BYTES: usize = 512;
/// Decoded bytes of a page that are kept unread: until there are more, no need to read them may
/// show, but then it is time to see whether anything more can matter.
const KEPT: usize = 16 * 1024;

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
    left: Encoded,
}

/// A scan that looks for everything, also for what cannot change the verdict.
#[derive(Debug)]
pub struct Traced(Scan);

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
    beginning: Beginning,
    /// Everything will be read: a trace is wanted.
    traced: bool,
    /// All characters so far: within the limit, and no longer than the answer waits.
    source: String,
    /// For the visible text, until there is a page.
    visible: String,
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

/// What becomes of the first decoded bytes.
#[derive(Debug)]
enum Beginning {
    /// They are kept, as long as it may be that nobody has to read them.
    Kept(Vec<u8>),
    /// They are all that is looked at, so many, and no wall and no blank page.
    Plain(usize),
    /// They are read.
    Read,
}

impl Scan {
    pub(super) fn new(start: Start<'_>) -> Self {
        let charset = Charset::new(start.content_type);
        let may_be_plain = start.is_html
            && !is_refusal(start.ground.status)
            && start.classifier.wants_walls(start.free, &start.asking);
        let mut text = Text {
            beginning: Beginning::Read,
            traced: false,
            charset,
            classifier: start.classifier,
            ground: start.ground,
            candidates: start.asking,
            free: start.free,
            settled: start.settled,
            may_be_blank: start.may_be_blank,
            is_html: start.is_html,
            source: String::new(),
            visible: String::new(),
            taken: 0,
            page: None,
            left: start.limit,
            decoded: 0,
            unreadable: false,
            done: false,
            most_text: None,
            title_known: false,
        };
        if may_be_plain {
            text.beginning = Beginning::Kept(Vec::new());
        } else {
            text.gather();
        }
        Self { decoder: Decoder::new(start.codings), left: Encoded::of(text.left), text }
    }

    /// The same scan, looking for everything. Nothing may have been pushed yet.
    #[must_use]
    pub fn traced(mut self) -> Traced {
        self.text.traced = true;
        Traced(self)
    }

    /// Looks at the next bytes as received (still encoded). False once nothing more can matter.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Self { decoder, text, left } = self;
        if text.done {
            return false;
        }
        let bytes = left.split_off(bytes);
        let read = decoder.push(bytes, &mut |piece| text.push(piece, false));
        if read.is_err() || left.is_used_up() && !text.done {
            text.break_off();
        }
        !text.done
    }

    /// The same for the last bytes of a body: where they are the first ones too, nothing is copied.
    pub fn push_last(&mut self, bytes: &[u8]) {
        if self.decoder.passes(bytes) {
            self.text.push(bytes, true);
        } else {
            self.push(bytes);
        }
    }

    /// The verdict.
    #[must_use]
    pub fn finish(self, end: BodyEnd) -> Judgement {
        self.conclude(end, None)
    }

    pub(super) fn conclude(mut self, end: BodyEnd, trace: Option<&mut Trace>) -> Judgement {
        let Self { decoder, text, .. } = &mut self;
        if !text.done && decoder.finish(&mut |piece| text.push(piece, false)).is_err() {
            text.break_off();
        }
        text.unreadable |= !decoder.is_complete();
        self.text.finish(end, trace)
    }
}

impl Traced {
    /// As [`Scan::push`].
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.push(bytes)
    }

    /// The verdict, and what else was found on the way.
    #[must_use]
    pub fn finish(self, end: BodyEnd) -> (Judgement, Trace) {
        let mut trace = Trace::default();
        (self.0.conclude(end, Some(&mut trace)), trace)
    }
}

impl Text {
    /// Takes decoded bytes, which are the `last` ones of the body or may have others behind them;
    /// false once nothing more can matter.
    fn push(&mut self, bytes: &[u8], last: bool) -> bool {
        if let Beginning::Kept(kept) = &mut self.beginning {
            let bytes = &bytes[..bytes.len().min(self.left - kept.len())];
            let length = kept.len() + bytes.len();
            let is_all = last || length == self.left;
            if length <= KEPT && kept.is_empty() && is_all && !self.traced {
                return self.take_whole(bytes);
            }
            if length <= KEPT {
                kept.extend_from_slice(bytes);
                self.done = is_all;
                return !self.done;
            }
        }
        self.read_kept();
        !self.done && self.take(bytes)
    }

    /// Reads what was kept unread.
    fn read_kept(&mut self) {
        let beginning = std::mem::replace(&mut self.beginning, Beginning::Read);
        if let Beginning::Kept(kept) = beginning {
            self.gather();
            self.done = false;
            self.take(&kept);
        }
    }

    /// Takes `page`, which is all that is looked at, and reads it only where that may matter; false
    /// once nothing more can matter.
    fn take_whole(&mut self, page: &[u8]) -> bool {
        self.beginning = Beginning::Read;
        if !self.is_plain(page) {
            self.gather();
        } else if self.may_be_blank && page.len() <= BLANK_BYTES && !shows(page, self.is_html) {
            self.candidates.clear();
        } else {
            self.beginning = Beginning::Plain(page.len());
            self.done = true;
            return false;
        }
        self.done = false;
        self.take(page)
    }

    /// Names all signatures that may match.
    fn gather(&mut self) {
        let classifier = &self.classifier;
        let free = &classifier.header_index.free()[..self.free];
        let mut spare = Spare::take();
        if is_origin_fault(self.ground.status) {
            let suits = |number: &&usize| classifier.signatures[**number].suits(self.ground.status);
            spare.candidates.extend(free.iter().filter(suits));
        } else {
            spare.candidates.extend_from_slice(free);
        }
        // Both lists ascend, and hardly any head leaves something to ask.
        for number in &self.candidates {
            let at = spare.candidates.partition_point(|other| other < number);
            spare.candidates.insert(at, *number);
        }
        self.candidates = spare.candidates;
        (self.source, self.visible) = (spare.source, spare.visible);
    }

    /// Whether this, of which nothing was read yet, is a page that leads on, so that it is no wall
    /// and no signature can match it.
    fn is_plain(&self, page: &[u8]) -> bool {
        let begin = page.strip_prefix(b"\xef\xbb\xbf").unwrap_or(page).trim_ascii_start();
        begin.first() == Some(&b'<') && has_many_links(page) && self.charset.is_utf_8(page)
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
            let begin = || {
                Page::with_buffer(
                    begins_as_html(new, self.is_html),
                    std::mem::take(&mut self.visible),
                )
            };
            self.page.get_or_insert_with(begin).push(new);
        }
    }

    /// Broken data: no reason to read on.
    fn break_off(&mut self) {
        (self.unreadable, self.done) = (true, true);
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
        if self.traced {
            self.read_kept();
        } else if let Beginning::Kept(kept) = &mut self.beginning {
            let kept = std::mem::take(kept);
            self.take_whole(&kept);
        }
        if let Beginning::Plain(bytes) = self.beginning {
            let settled = self.settled.take();
            let judgement = settled.unwrap_or_else(|| self.ground.without_mark(end));
            return Judgement { bytes, ..judgement };
        }
        self.charset.finish(&mut self.source);
        self.read();
        let page = self.page.take().unwrap_or_else(|| Page::new(self.is_html));
        if let Some(trace) = &mut trace {
            trace.visible_text = page.visible.count();
            trace.bytes = self.decoded;
        }
        let answers = self.ask(&page, end, trace);
        let mut judgement = match answers.decided.or_else(|| self.settled.take()) {
            Some(judgement) => judgement,
            None => self.without_mark(&page, end),
        };
        judgement.decoys = answers.decoys;
        judgement.logged.extend(answers.logged);
        if page.is_html() {
            judgement.bytes = self.decoded;
        }
        if let (Verdict::Ok, Some(evidence)) = (judgement.verdict, answers.suspect) {
            let page = std::mem::take(&mut self.source);
            judgement.suspect = Some(Box::new(Suspect { evidence, page }));
        }
        Spare {
            source: self.source,
            visible: page.visible.into_buffer(),
            candidates: self.candidates,
        }
        .keep();
        judgement
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
