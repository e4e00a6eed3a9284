//! Weighs the words of a page for each family of walls.

use std::net::Ipv4Addr;

use super::{
    text::{beginning, weight},
    words::{Meaning, Word, WordMatches, Words},
};

/// A text opens the page if it begins within this many characters. A heading that repeats the title does not count.
const FIRST: usize = 20;

/// An explanation begins within this many characters of visible text.
const OPENING: usize = 30;

/// Longest heading, in characters.
const HEADING: usize = 100;

/// A server's own error page names its status within this many characters.
const STATUS: usize = 40;

/// The points and properties of a page, derived from its words.
#[derive(Debug, Default)]
pub(super) struct Weights {
    pub(super) human: u32,
    pub(super) too_many: u32,
    pub(super) refusal: u32,
    /// Number of words that refer to an ordinary page or to other people, or that are quoted.
    pub(super) own: usize,
    /// It is a page about refusals, such as help. Its title explains or asks something; or its first words do so under
    /// a title that does not refuse; or it quotes walls, or describes what may happen.
    pub(super) is_about_refusals: bool,
    /// It is about a form that must be sent again, its token, or a failed login.
    pub(super) is_about_input: bool,
    /// It repeats its title as a heading. The title has words of walls, but none that ask to wait.
    pub(super) is_headed: bool,
    /// It repeats its title as a heading, and the title has no other words of walls than "human" or "robot".
    pub(super) has_topic: bool,
    /// It addresses the visitor, or contains a reference number or an address.
    pub(super) speaks_to_visitor: bool,
    /// The title names the purpose of an ordinary page.
    pub(super) has_purpose: bool,
    /// It begins with an explanation for readers.
    pub(super) explains: bool,
    /// It says that the visitor lacks scripts or cookies.
    pub(super) needs: bool,
    /// It says that the visitor lacks scripts or cookies, and what to do.
    pub(super) lacks: bool,
    /// It says that a client behaves like a program.
    pub(super) unusual: bool,
    /// It opens with a request for a proof, and contains a reference number.
    pub(super) names_human_case: bool,
    /// The title mentions a check.
    pub(super) titled_check: bool,
    /// A known phrase reports too many requests.
    pub(super) says_too_many: bool,
    /// The page asks for a proof.
    pub(super) asks: bool,
    /// A known phrase asks for a proof.
    pub(super) insists: bool,
    /// A sentence asks for a proof, and not only a phrase. The text asks no question.
    pub(super) demands: bool,
    /// It says how to pass the check.
    pub(super) task: bool,
    /// It mentions the visitor's browser and has no other mark of a wall.
    pub(super) only_browser: bool,
    /// It asks for no proof, but has instructions for a visitor that behaves like a program.
    pub(super) only_strange: bool,
    /// The title reports too many requests.
    pub(super) titled_too_many: bool,
    /// It refuses, and names the reason or the refused address.
    pub(super) names_reason: bool,
    /// It has a phrase of a refusal and a reference number.
    pub(super) names_case: bool,
    /// The title names the status of a refusal.
    pub(super) says_status: bool,
    /// The title says that the visitor was refused.
    pub(super) titled_denied: bool,
    /// The title begins with the refusal.
    pub(super) opens_denied: bool,
    /// It names a firewall, or shows an address.
    pub(super) names_refuser: bool,
    /// The page has no title, or a title that fits a refusal.
    pub(super) may_refuse: bool,
    /// It mentions a security check.
    pub(super) names_check: bool,
    /// The visitor, its address or its request was blocked, and the title is about nothing else.
    pub(super) is_banned: bool,
    /// It asks to wait, or says that it goes on.
    pub(super) waits: bool,
    /// The title only asks to wait.
    pub(super) titled_wait: bool,
    /// The part of the page with the evidence, and the position in it.
    pub(super) place: Place,
}

/// The part of a page that contains the evidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Title,
    Text(usize),
}

/// The title and the text of a page, with their words.
struct Page<'a> {
    title: &'a str,
    titled: WordMatches,
    text: &'a str,
    said: WordMatches,
}

impl Page<'_> {
    /// The first results of `find` in the title and in the text.
    fn both(
        &self,
        find: impl Fn(&WordMatches, &str) -> Option<Word>,
    ) -> (Option<usize>, Option<usize>) {
        let begin = |word: Option<Word>| word.map(|word| word.begin);
        (begin(find(&self.titled, self.title)), begin(find(&self.said, self.text)))
    }

    /// Whether the title or the text has a word of this meaning.
    fn has(&self, meaning: Meaning) -> bool {
        self.titled.has(meaning) || self.said.has(meaning)
    }

    /// Points for a word at `begin`: `first` if the text opens with it, otherwise `later`.
    fn at(&self, begin: Option<usize>, first: u32, later: u32) -> u32 {
        begin.map_or(0, |begin| {
            let before = self.text.get(self.heading()..begin).unwrap_or("");
            if weight(before) <= FIRST { first } else { later }
        })
    }

    /// Bytes of the heading that repeats the title.
    fn heading(&self) -> usize {
        if self.text.trim_start().starts_with(self.title) { self.title.len() } else { 0 }
    }

    /// Whether the title or the start of the text explains something to readers.
    fn begins_to_explain(&self) -> bool {
        let explains = self.said.first(Meaning::Explain);
        let at_start = explains
            .is_some_and(|word| weight(self.text.get(..word.begin).unwrap_or("")) <= OPENING);
        self.titled.has(Meaning::Explain) || at_start
    }

    fn is_about_refusals(&self) -> bool {
        let refuses = self.titled.has(Meaning::Denied) || self.titled.has(Meaning::TooMany);
        self.titled.has(Meaning::Explain)
            || is_question(self.title)
            || !refuses && (self.begins_to_explain() || is_question(first_sentence(self.text)))
    }

    /// Whether the visitor was blocked and the title is about nothing else. If the text begins with the blocked
    /// address, any title is allowed except one that names an ordinary page's purpose.
    fn is_banned(&self) -> bool {
        let start = &self.text[..beginning(self.text, STATUS)];
        let opens = |word: Word| word.begin < start.len();
        let of_address = self.said.first(Meaning::Address).is_some_and(opens)
            && !self.titled.has(Meaning::Purpose);
        let names_it = has_address(start);
        let may_refuse = self.may_refuse_by_title();
        self.has(Meaning::Banned) && (may_refuse || of_address)
            || may_refuse && names_it && self.said.has(Meaning::Refuse)
    }

    /// Whether the page has no title, or a title that fits a refusal.
    fn may_refuse_by_title(&self) -> bool {
        const REFUSES: [Meaning; 7] = [
            Meaning::Denied,
            Meaning::Banned,
            Meaning::Refuse,
            Meaning::Firewall,
            Meaning::Unusual,
            Meaning::SecurityCheck,
            Meaning::Trouble,
        ];
        let refuses = |meaning| self.titled.has(meaning);
        self.title.is_empty() || names_403(self.title) || REFUSES.into_iter().any(refuses)
    }

    /// The sum of the points of the meanings that the text has.
    fn points(&self, points: &[(Meaning, u32)]) -> u32 {
        points.iter().filter(|(meaning, _)| self.said.has(*meaning)).map(|(_, points)| points).sum()
    }
}

impl Weights {
    pub(super) fn of(title: &str, text: &str) -> Self {
        let words = Words::builtin();
        let page = Page { title, titled: words.find(title), text, said: words.find(text) };
        if page.titled.is_empty() && page.said.is_empty() {
            return Self::default();
        }
        let own = |said: &WordMatches| {
            said.count(Meaning::Own) + said.count(Meaning::General) + said.cited()
        };
        let shows_case = has_address(text) && page.said.has(Meaning::Address);
        let cites =
            |said: &WordMatches| said.has(Meaning::General) && !shows_case || said.cited() > 0;
        let mut weights = Self {
            own: own(&page.titled) + own(&page.said) + usize::from(lists_addresses(text)),
            is_about_refusals: page.is_about_refusals() && !shows_case
                || cites(&page.titled)
                || cites(&page.said),
            is_about_input: page.has(Meaning::Input),
            is_headed: page.heading() > 0
                && !page.titled.is_empty()
                && !page.titled.has(Meaning::Wait),
            has_topic: page.titled.has_only(Meaning::Human)
                && title.contains(' ')
                && !title.contains("captcha")
                && page.heading() > 0,
            needs: page.said.has(Meaning::Needs),
            unusual: page.has(Meaning::Unusual),
            speaks_to_visitor: page.has(Meaning::Visitor)
                || page.said.has(Meaning::Reference)
                || has_address(text),
            has_purpose: page.titled.has(Meaning::Purpose),
            explains: page.begins_to_explain(),
            says_too_many: page.has(Meaning::TooMany),
            titled_check: page.titled.has(Meaning::Verify),
            may_refuse: page.may_refuse_by_title(),
            is_banned: page.is_banned(),
            names_check: page.has(Meaning::SecurityCheck),
            waits: page.has(Meaning::Wait),
            titled_wait: page.titled.has(Meaning::Wait) && page.titled.has_only(Meaning::Wait),
            ..Self::default()
        };
        weights.weigh_human(&page);
        weights.weigh_too_many(&page);
        weights.weigh_refusal(&page);
        weights
    }

    /// Whether the page says that somebody checks a robot or a human, but asks nobody for a proof.
    pub(super) const fn is_statement(&self) -> bool {
        let goes_on = self.waits || self.task || self.needs;
        let accuses = self.unusual || self.names_check || self.insists;
        self.asks && !self.speaks_to_visitor && !goes_on && !accuses
    }

    fn weigh_human(&mut self, page: &Page<'_>) {
        let pairs = page.both(|said, text| said.together(Meaning::Human, Meaning::Verify, text));
        self.demands = pairs.0.or(pairs.1).is_some() && !is_question(page.text);
        let asked = page.both(|said, text| {
            let pair = said.together(Meaning::Human, Meaning::Verify, text);
            earlier(pair, said.first(Meaning::Proof))
        });
        let browser =
            page.both(|said, text| said.together(Meaning::Browser, Meaning::Verify, text));
        let (in_title, in_text) = (asked.0.or(browser.0), asked.1.or(browser.1));
        self.asks = asked.0.or(asked.1).is_some();
        self.insists = page.has(Meaning::Proof);
        self.task = page.has(Meaning::Task);
        let check = page.has(Meaning::SecurityCheck);
        self.lacks = page.said.has(Meaning::Needs) && page.said.has(Meaning::Task);
        let is_first = |begin: usize| weight(page.text.get(..begin).unwrap_or("")) <= FIRST;
        self.names_human_case =
            self.insists && page.said.has(Meaning::Reference) && in_text.is_some_and(is_first);
        let strange = self.lacks
            || self.task && (page.said.has(Meaning::Unusual) || page.has(Meaning::TooMany));
        if in_title.or(in_text).is_none() && !check && !strange {
            return;
        }
        let title = &page.titled;
        let says_so = title.has(Meaning::Verify) && in_title.is_none() && self.asks;
        let text = page.text.trim();
        let core = 4 * u32::from(in_title.is_some())
            + page.at(in_text, 4, 3)
            + 3 * u32::from(title.has(Meaning::SecurityCheck))
            + 2 * u32::from(title.has(Meaning::Unusual))
            + 2 * u32::from(title.has(Meaning::Task))
            + 2 * u32::from(title.has(Meaning::SecurityCheck) && text.is_empty())
            + u32::from(says_so)
            + u32::from(title.has(Meaning::Wait) && !page.said.has(Meaning::Wait));
        let check = page.said.first(Meaning::SecurityCheck).map(|word| word.begin);
        let hints = page.points(&[
            (Meaning::Unusual, 2),
            (Meaning::Task, 2),
            (Meaning::Wait, 1),
            (Meaning::Needs, 1),
            (Meaning::Firewall, 1),
            (Meaning::Reference, 1),
        ]);
        self.human = core + page.at(check, 3, 2) + hints;
        if strange && page.has(Meaning::TooMany) {
            self.human += 2;
        }
        let says_nothing_else = in_title.or(in_text).or(check).is_none();
        self.only_strange = says_nothing_else
            && !title.has(Meaning::SecurityCheck)
            && !page.said.has(Meaning::Address);
        self.only_browser = hints == 0 && !self.asks && !page.has(Meaning::SecurityCheck);
        if let (None, Some(begin)) = (in_title, in_text.or(check)) {
            self.place = Place::Text(begin);
        }
    }

    fn weigh_too_many(&mut self, page: &Page<'_>) {
        // A page may mention too many of anything to a visitor whom it does not refuse.
        let is_refused = page.has(Meaning::Refuse) || page.has(Meaning::Banned);
        let (title, text) = page.both(|said, text| {
            let request = said.together(Meaning::Many, Meaning::Request, text);
            let visitor =
                is_refused.then(|| said.together(Meaning::Many, Meaning::Refused, text)).flatten();
            earlier(earlier(request, visitor), said.first(Meaning::TooMany))
        });
        self.titled_too_many = title.is_some();
        self.too_many = 4 * u32::from(title.is_some()) + page.at(text, 4, 3);
        if self.too_many > 0 {
            self.too_many += page.points(&[(Meaning::Wait, 1), (Meaning::Address, 1)]);
        }
        if let (None, Some(begin), 0) = (title, text, self.human) {
            self.place = Place::Text(begin);
        }
    }

    fn weigh_refusal(&mut self, page: &Page<'_>) {
        let (title, text) = page.both(|said, text| {
            let request = said.together(Meaning::Refuse, Meaning::Request, text);
            let visitor = said.together(Meaning::Refuse, Meaning::Refused, text);
            earlier(earlier(request, visitor), said.first(Meaning::Denied))
        });
        if title.or(text).is_none() {
            return;
        }
        let both = |meaning| u32::from(page.has(meaning));
        let is_titled = page.title.is_empty() || page.titled.has(Meaning::Denied);
        let start = &page.text[..beginning(page.text, STATUS)];
        self.says_status =
            title.is_some() && names_403(page.title) || is_titled && names_403(start);
        let is_said = page.has(Meaning::Denied) && names_403(start);
        self.titled_denied = page.titled.has(Meaning::Denied);
        self.opens_denied = page.titled.first(Meaning::Denied).is_some_and(|word| word.begin == 0);
        self.names_refuser = both(Meaning::Firewall) > 0 || has_address(page.text);
        self.names_reason =
            both(Meaning::Firewall) + both(Meaning::Unusual) > 0 || page.said.has(Meaning::Address);
        self.names_case = page.has(Meaning::Denied) && page.said.has(Meaning::Reference);
        let firewalls = page.titled.count(Meaning::Firewall) + page.said.count(Meaning::Firewall);
        let in_title = match title {
            Some(_) => 2,
            None => u32::from(page.titled.has(Meaning::Refuse)),
        };
        self.refusal = in_title
            + u32::from(firewalls > 2)
            + u32::from(is_said)
            + page.at(text, 3, 2)
            + 2 * both(Meaning::Firewall)
            + 2 * both(Meaning::Unusual)
            + u32::from(has_address(page.text))
            + page.points(&[(Meaning::Address, 1), (Meaning::Reference, 1)]);
        if let (None, Some(begin), 0) = (title, text, self.human + self.too_many) {
            self.place = Place::Text(begin);
        }
    }
}

fn earlier(one: Option<Word>, other: Option<Word>) -> Option<Word> {
    one.into_iter().chain(other).min_by_key(|word| word.begin)
}

/// The first sentence of `text`, within the length of a heading.
fn first_sentence(text: &str) -> &str {
    let heading = &text[..beginning(text, HEADING)];
    let ends = |character| matches!(character, '.' | '!' | '?' | '。' | '！' | '？' | '؟');
    heading.find(ends).map_or("", |at| {
        let end = heading[at..].chars().next().map_or(0, char::len_utf8);
        &heading[..at + end]
    })
}

/// Whether `text` contains an IPv4 address, which may be the visitor's.
fn has_address(text: &str) -> bool {
    addresses(text).next().is_some()
}

/// Whether `text` has more addresses than those of the visitor and of a server.
fn lists_addresses(text: &str) -> bool {
    addresses(text).nth(2).is_some()
}

/// The IPv4 addresses in `text`.
fn addresses(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.filter_map(|word| word.trim_matches('.').parse().ok())
}

/// Whether `text` asks a question.
fn is_question(text: &str) -> bool {
    text.contains(['?', '？', '؟'])
}

/// Whether a title contains the number of a refusal.
fn names_403(title: &str) -> bool {
    title.split(|c: char| !c.is_alphanumeric()).any(|word| word == "403")
}
