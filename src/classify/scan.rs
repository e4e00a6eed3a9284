//! Scans the body of one response.

mod buffers;
mod matches;

use std::sync::Arc;

use http::HeaderValue;

use self::buffers::Buffers;
use super::{
    BodyEnd, HeadContext,
    charset::{Charset, ROOM},
    classifier::Classifier,
    decode::{Coding, Decoder, EncodedBudget},
    head::{is_origin_fault, is_refusal},
    page::{Page, Title, begins_as_html, shows},
    structure::has_many_links,
    trace::Trace,
};
use crate::classify::verdict::{Confidence, Evidence, Judgement, Suspect, Verdict};

/// Decoded bytes between two checks whether the scan can stop early.
const STRIDE: usize = 4 * 1024;
/// Longest body that can be a blank page: empty markup is shorter.
const BLANK_BYTES: usize = 512;
/// Decoded bytes that are buffered before the scan starts. A complete page of at most this size
/// goes through the prefilter first, which rules most pages out without a scan.
const MAX_BUFFERED: usize = 16 * 1024;

/// The arguments of [`Scan::new`].
pub(super) struct Start<'a> {
    pub(super) classifier: Arc<Classifier>,
    pub(super) context: HeadContext,
    /// Signatures with conditions on the head, all of which hold, by number.
    pub(super) conditional: Vec<usize>,
    /// How many of the signatures without a condition on the head are still in question.
    pub(super) unconditional: usize,
    /// The head's judgement, unless a signature of higher priority matches.
    pub(super) by_head: Option<Judgement>,
    pub(super) may_be_blank: bool,
    pub(super) codings: Vec<Coding>,
    pub(super) content_type: Option<&'a HeaderValue>,
    /// The head declares HTML.
    pub(super) is_html: bool,
    /// Decoded bytes to scan.
    pub(super) limit: usize,
}

/// A scan of one body. It takes the bytes as received and decodes a copy.
#[derive(Debug)]
pub struct Scan {
    decoder: Decoder,
    text: Text,
    left: EncodedBudget,
}

/// A scan that also collects data for a trace. It does not change the verdict.
#[derive(Debug)]
pub struct Traced(Scan);

/// The decoded side of a scan.
#[derive(Debug)]
struct Text {
    classifier: Arc<Classifier>,
    context: HeadContext,
    /// Signatures that may match. Until the scan starts, only those with conditions on the head.
    candidates: Vec<usize>,
    /// How many signatures without a condition on the head may match too.
    unconditional: usize,
    by_head: Option<Judgement>,
    may_be_blank: bool,
    is_html: bool,
    charset: Charset,
    prefix: Prefix,
    /// Whether a trace is wanted. Then everything is read.
    traced: bool,
    /// All characters so far, bounded by the scan limit.
    source: String,
    /// A buffer for the visible text until the page exists.
    visible: String,
    /// Bytes of `source` that the page has consumed.
    consumed: usize,
    /// The page; exists once there are characters.
    page: Option<Page>,
    /// Bytes that may still be decoded.
    left: usize,
    decoded: usize,
    /// The data is broken. A match counts, but a missing match shows nothing.
    unreadable: bool,
    done: bool,
    /// The most characters of visible text with which a candidate can match. `None` without candidates, and before the
    /// first characters.
    max_visible_text: Option<usize>,
    title_known: bool,
}

/// The state of the first decoded bytes.
#[derive(Debug)]
enum Prefix {
    /// Buffered. The prefilter may still rule the page out.
    Buffered(Vec<u8>),
    /// The prefilter has ruled out the page, which has this many bytes: neither a wall nor blank.
    RuledOut(usize),
    /// Being scanned.
    Read,
}

impl Scan {
    pub(super) fn new(start: Start<'_>) -> Self {
        let charset = Charset::new(start.content_type);
        let may_be_ruled_out = start.is_html
            && !is_refusal(start.context.status)
            && start.classifier.require_wall_shape(start.unconditional, &start.conditional);
        let mut text = Text {
            prefix: Prefix::Read,
            traced: false,
            charset,
            classifier: start.classifier,
            context: start.context,
            candidates: start.conditional,
            unconditional: start.unconditional,
            by_head: start.by_head,
            may_be_blank: start.may_be_blank,
            is_html: start.is_html,
            source: String::new(),
            visible: String::new(),
            consumed: 0,
            page: None,
            left: start.limit,
            decoded: 0,
            unreadable: false,
            done: false,
            max_visible_text: None,
            title_known: false,
        };
        if may_be_ruled_out {
            text.prefix = Prefix::Buffered(Vec::new());
        } else {
            text.collect_candidates();
        }
        Self { decoder: Decoder::new(start.codings), left: EncodedBudget::of(text.left), text }
    }

    /// Turns this scan into a traced one. Must be called before the first push.
    #[must_use]
    pub fn traced(mut self) -> Traced {
        self.text.traced = true;
        Traced(self)
    }

    /// Scans the next bytes as received (still encoded). False once the result is certain.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Self { decoder, text, left } = self;
        if text.done {
            return false;
        }
        let bytes = left.split_off(bytes);
        let read = decoder.push(bytes, &mut |piece| text.push(piece, false));
        if read.is_err() || left.is_used_up() && !text.done {
            text.stop_unreadable();
        }
        !text.done
    }

    /// Scans the last bytes of a body. A body that comes in one piece is not copied.
    pub fn push_last(&mut self, bytes: &[u8]) {
        if self.decoder.is_identity(bytes) {
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
            text.stop_unreadable();
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

    /// The verdict and the trace.
    #[must_use]
    pub fn finish(self, end: BodyEnd) -> (Judgement, Trace) {
        let mut trace = Trace::default();
        (self.0.conclude(end, Some(&mut trace)), trace)
    }
}

impl Text {
    /// Takes decoded bytes; `last` if no more follow. False once the result is certain.
    fn push(&mut self, bytes: &[u8], last: bool) -> bool {
        if let Prefix::Buffered(buffered) = &mut self.prefix {
            let bytes = &bytes[..bytes.len().min(self.left - buffered.len())];
            let length = buffered.len() + bytes.len();
            let is_all = last || length == self.left;
            if length <= MAX_BUFFERED && buffered.is_empty() && is_all && !self.traced {
                return self.scan_whole(bytes);
            }
            if length <= MAX_BUFFERED {
                buffered.extend_from_slice(bytes);
                self.done = is_all;
                return !self.done;
            }
        }
        self.scan_buffered();
        !self.done && self.take(bytes)
    }

    /// Scans the buffered bytes.
    fn scan_buffered(&mut self) {
        let prefix = std::mem::replace(&mut self.prefix, Prefix::Read);
        if let Prefix::Buffered(buffered) = prefix {
            self.collect_candidates();
            self.done = false;
            self.take(&buffered);
        }
    }

    /// Takes `page`, all of the body that is to be scanned. Scans it only if the prefilter does not
    /// rule it out. False once the result is certain.
    fn scan_whole(&mut self, page: &[u8]) -> bool {
        self.prefix = Prefix::Read;
        if !self.is_ruled_out(page) {
            self.collect_candidates();
        } else if self.may_be_blank && page.len() <= BLANK_BYTES && !shows(page, self.is_html) {
            self.candidates.clear();
        } else {
            self.prefix = Prefix::RuledOut(page.len());
            self.done = true;
            return false;
        }
        self.done = false;
        self.take(page)
    }

    /// Collects all signatures that may match, in order of priority.
    fn collect_candidates(&mut self) {
        let classifier = &self.classifier;
        let unconditional = &classifier.header_index.unconditional()[..self.unconditional];
        let mut buffers = Buffers::take();
        if is_origin_fault(self.context.status) {
            let accepts_status = |number: &&usize| {
                classifier.signatures[**number].accepts_status(self.context.status)
            };
            buffers.candidates.extend(unconditional.iter().filter(accepts_status));
        } else {
            buffers.candidates.extend_from_slice(unconditional);
        }
        // Both lists ascend, and the second is nearly always empty.
        for number in &self.candidates {
            let at = buffers.candidates.partition_point(|other| other < number);
            buffers.candidates.insert(at, *number);
        }
        self.candidates = buffers.candidates;
        (self.source, self.visible) = (buffers.source, buffers.visible);
    }

    /// The prefilter: whether an unread page has so many links that no signature can match it.
    fn is_ruled_out(&self, page: &[u8]) -> bool {
        let begin = page.strip_prefix(b"\xef\xbb\xbf").unwrap_or(page).trim_ascii_start();
        begin.first() == Some(&b'<') && has_many_links(page) && self.charset.is_utf_8(page)
    }

    /// Scans decoded bytes. False once the result is certain.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.source.reserve(bytes.len().min(self.left) + ROOM);
        for stride in bytes.chunks(STRIDE) {
            let stride = &stride[..stride.len().min(self.left)];
            self.left -= stride.len();
            self.decoded += stride.len();
            self.charset.push(stride, &mut self.source);
            self.read();
            self.update_done();
            if self.done {
                return false;
            }
        }
        true
    }

    /// Passes new characters to the page, and creates it with the first of them.
    fn read(&mut self) {
        let new = &self.source[self.consumed..];
        self.consumed = self.source.len();
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

    /// The data is broken: stop.
    fn stop_unreadable(&mut self) {
        (self.unreadable, self.done) = (true, true);
    }

    /// Decides whether more bytes can change the result.
    fn update_done(&mut self) {
        self.done = self.left == 0;
        let Some(page) = &self.page else { return };
        let title_known = matches!(page.title, Title::Known(_));
        if self.max_visible_text.is_none() || title_known != self.title_known {
            self.title_known = title_known;
            let classifier = &self.classifier;
            self.candidates
                .retain(|number| classifier.signatures[*number].applies_to(page.is_html()));
            let most = |number: &usize| {
                classifier.signatures[*number].max_visible_text(self.context.status, &page.title)
            };
            self.max_visible_text = self.candidates.iter().map(most).max();
        }
        self.may_be_blank &= page.is_html()
            && self.decoded <= BLANK_BYTES
            && !page.has_content
            && page.visible.count() == 0;
        let is_open = self.max_visible_text.is_some_and(|most| page.visible.count() <= most);
        self.done |= !is_open && !self.may_be_blank;
    }

    fn finish(mut self, end: BodyEnd, mut trace: Option<&mut Trace>) -> Judgement {
        if self.traced {
            self.scan_buffered();
        } else if let Prefix::Buffered(buffered) = &mut self.prefix {
            let buffered = std::mem::take(buffered);
            self.scan_whole(&buffered);
        }
        if let Prefix::RuledOut(bytes) = self.prefix {
            let by_head = self.by_head.take();
            let judgement = by_head.unwrap_or_else(|| self.context.without_match(end));
            return Judgement { bytes, ..judgement };
        }
        self.charset.finish(&mut self.source);
        self.read();
        let page = self.page.take().unwrap_or_else(|| Page::new(self.is_html));
        if let Some(trace) = &mut trace {
            trace.visible_text = page.visible.count();
            trace.bytes = self.decoded;
        }
        let matches = self.evaluate(&page, end, trace);
        let mut judgement = match matches.decided.or_else(|| self.by_head.take()) {
            Some(judgement) => judgement,
            None => self.without_match(&page, end),
        };
        judgement.decoys = matches.decoys;
        judgement.logged.extend(matches.logged);
        if page.is_html() {
            judgement.bytes = self.decoded;
        }
        if let (Verdict::Ok, Some(evidence)) = (judgement.verdict, matches.suspect) {
            let page = std::mem::take(&mut self.source);
            judgement.suspect = Some(Box::new(Suspect { evidence, page }));
        }
        Buffers {
            source: self.source,
            visible: page.visible.into_buffer(),
            candidates: self.candidates,
        }
        .keep();
        judgement
    }

    /// The judgement if no signature matches.
    fn without_match(&self, page: &Page, end: BodyEnd) -> Judgement {
        let without = self.context.without_match(end);
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
            excerpt: format!("{} bytes of HTML without content", self.decoded),
        };
        self.context.judgement(Verdict::BlankPage, Confidence::Low, Some(evidence))
    }
}
