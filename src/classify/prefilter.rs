//! Tells of nearly every page, before anything of it is decoded, that no signature can match it.
//!
//! An n-gram filter goes over the bytes once, for one condition of each signature: its titles, or strings of
//! which one must be there. It is sure where it says no; where it does not, the page is read.

use super::{
    compiled::Compiled,
    literal::Literal,
    ngram_filter::{NgramFilter, Shape},
    obfuscated::is_obfuscated,
    page::MAX_TITLE,
    tag::{Tag, closes},
    text::normalised,
};
use crate::rules::glob_matches;

/// How a title begins.
const TITLE: &[u8] = b"<title";

/// Bytes by which most titles are told from those that are asked for.
const TITLE_BEGIN: usize = 3;

/// The signatures of a classifier, prepared for a prefilter over a page.
#[derive(Debug)]
pub(crate) struct Prefilter {
    filter: NgramFilter,
    literals: Vec<Literal>,
    /// Titles that are no globs, ascending.
    titles: Vec<String>,
    globs: Vec<String>,
    /// How all of these begin, ascending; `None` where one is too short or begins otherwise.
    title_begins: Option<Vec<[u8; TITLE_BEGIN]>>,
    /// The characters beyond ASCII of the literals, ascending.
    letters: Vec<char>,
    /// Numbers of the signatures that it cannot look for, ascending.
    unsure: Vec<usize>,
}

impl Prefilter {
    /// A prefilter for those of `signatures` that pages can match under a status that does not refuse.
    /// `raw` and `text` are the strings by the numbers that these have for them.
    pub(crate) fn new(signatures: &[Compiled], raw: &[String], text: &[String]) -> Option<Self> {
        let (mut literals, mut titles, mut unsure) = (Vec::new(), Vec::new(), Vec::new());
        let on_pages = |signature: &Compiled| signature.applies_to(true) && signature.is_ordinary();
        for (number, signature) in signatures.iter().enumerate() {
            if !on_pages(signature) {
                continue;
            }
            if let Some(wanted) = signature.titles() {
                titles.extend_from_slice(wanted);
                continue;
            }
            let prepared = signature.conditions().into_iter().filter_map(|condition| {
                let literal = |(in_text, in_markup): &(usize, Option<usize>)| {
                    let in_markup = in_markup.map(|number| raw[number].as_str());
                    Literal::new(&text[*in_text], in_markup)
                };
                condition.iter().map(literal).collect::<Option<Vec<Literal>>>()
            });
            let shortest = |literals: &Vec<Literal>| literals.iter().map(Literal::len).min();
            match prepared.max_by_key(shortest) {
                Some(prepared) => literals.extend(prepared),
                None => unsure.push(number),
            }
        }
        titles.sort_unstable();
        titles.dedup();
        let begin =
            |title: &String| title.as_bytes().first_chunk().filter(|b| !b.contains(&b'*')).copied();
        let title_begins = titles.iter().map(begin).collect();
        let (globs, titles) = titles.into_iter().partition(|title| title.contains('*'));
        let mut letters: Vec<char> = literals.iter().flat_map(Literal::letters).collect();
        letters.sort_unstable();
        letters.dedup();
        let shapes: Vec<Shape> =
            literals.iter().map(Literal::shape).chain([title_shape()]).collect();
        Some(Self {
            filter: NgramFilter::new(&shapes)?,
            literals,
            titles,
            globs,
            title_begins,
            letters,
            unsure,
        })
    }

    /// Whether it can look for all of these signatures.
    pub(crate) fn knows(&self, signatures: &[usize]) -> bool {
        !signatures.iter().any(|number| self.unsure.contains(number))
    }

    /// Whether a page of these bytes, which are UTF-8, may have what some signature asks for.
    pub(crate) fn may_match(&self, page: &[u8]) -> bool {
        let may_stand = |number: usize, begin: usize| match self.literals.get(number) {
            Some(literal) => literal.may_stand(page, begin),
            None => self.may_be_titled(&page[begin..]),
        };
        self.filter.any(page, may_stand) || is_obfuscated(page, &self.letters)
    }

    /// Whether what may be a title has the name of one that is asked for.
    fn may_be_titled(&self, page: &[u8]) -> bool {
        let is_title = |name: &[u8]| name.eq_ignore_ascii_case(&TITLE[1..]);
        if page.first() != Some(&b'<') || !page.get(1..TITLE.len()).is_some_and(is_title) {
            return false;
        }
        let Some(tag) = Tag::whole(&page[1..]) else { return true };
        if !is_title(tag.name) {
            return false;
        }
        let content = &page[1 + tag.len..];
        let Some(end) = memchr::memchr(b'<', content) else { return false };
        if end > MAX_TITLE || !closes(&content[end + 1..], &TITLE[1..]) {
            return true;
        }
        if !self.may_begin_title(&content[..end]) {
            return false;
        }
        let title = normalised(&String::from_utf8_lossy(&content[..end]));
        let title = title.trim();
        self.titles.binary_search_by(|known| known.as_str().cmp(title)).is_ok()
            || self.globs.iter().any(|glob| glob_matches(glob, title))
    }

    /// Whether a title that is asked for may begin as `content` does.
    fn may_begin_title(&self, content: &[u8]) -> bool {
        let begin: Option<&[u8; TITLE_BEGIN]> = content.trim_ascii_start().first_chunk();
        match (&self.title_begins, begin) {
            (Some(known), Some(begin)) if begin.iter().all(u8::is_ascii_alphanumeric) => {
                known.binary_search(&begin.map(|byte| byte.to_ascii_lowercase())).is_ok()
            }
            _ => true,
        }
    }
}

/// How a title begins, with the bytes that may stand beside it.
fn title_shape() -> Shape {
    let mut shape = Shape::of(TITLE);
    shape.before = 1;
    shape.places.insert(0, (0..=u8::MAX).collect());
    shape.places.push(b"> /\t\n\x0c\r".to_vec());
    shape
}

#[cfg(test)]
mod tests {
    use crate::classify::Classifier;

    fn may_match(page: &str) -> bool {
        let classifier = Classifier::builtin();
        let prefilter = classifier.prefilter.as_ref().expect("no built-in signature is beyond it");
        assert!(prefilter.unsure.is_empty(), "{:?}", prefilter.unsure);
        prefilter.may_match(page.as_bytes())
    }

    #[test]
    fn ordinary_pages_need_no_second_look() {
        for page in [
            "<title>Protection of your computer</title><h1>Is it blocked? Was it banned?</h1>",
            "<TITLE lang=en>Just a moment</TITLE><svg><title>Menu</title></svg>",
            "<th>IP address</th><td>10.0.0.1</td><p>The administrator &amp; the website's visitor",
            "<a href=\"?a=1&amp;b=2\" title=\"It&#39;s &lt;here&gt;\">caf&eacute;&nbsp;&#8211;</a><!-- x -->",
            "<script>window.part = 'captcha'; document.title = 'challenge'; !a && b</script>",
        ] {
            assert!(!may_match(page), "{page}");
        }
    }

    #[test]
    fn marks_are_seen_however_they_are_written() {
        for page in [
            "<title> Just a\n moment&period;..</title>",
            "<title lang='>'>JUST A MOMENT...</title>",
            "<title>Just a <moment...</title>",
            "<title>Error 429 - slow down</title>",
            "<p>Your IP has been <b>banned</b>",
            "<p>your&nbsp;ip has been bann<!-- -->ed",
            "<p>ВАШ IP ЗАБЛОКИРОВАН",
            "<p>您的IP已被封",
            "Reference&#32;&#35;18&#46;5d <a href=errors&#46;edgesuite&#46;net&#47;18&#46;5d>",
            "<div id=PX-captcha-wrapper>",
        ] {
            assert!(may_match(page), "{page}");
        }
    }
}
