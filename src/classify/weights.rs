//! What the words of a page weigh for each family of walls.

use super::{
    text::{beginning, weight},
    words::{Meaning, Word, WordMatches, Words},
};

/// Characters of visible text before what a page says first of all, a heading as the title aside.
const FIRST: usize = 20;

/// Characters of visible text in which an explanation begins.
const OPENING: usize = 30;

/// Characters of a heading.
const HEADING: usize = 100;

/// Characters in which a server's own answer names its status.
const STATUS: usize = 40;

/// What the words of a page weigh.
#[derive(Debug, Default)]
pub(super) struct Weights {
    pub(super) human: u32,
    pub(super) too_many: u32,
    pub(super) refusal: u32,
    /// How many words speak of a page of the site itself, of others than the visitor, or are cited.
    pub(super) own: usize,
    /// It is about walls that refuse, as help is: its title explains or asks something, or its first words do under a
    /// title that refuses nothing; it cites what walls say, or speaks of what may happen.
    pub(super) is_about_refusals: bool,
    /// It repeats its title as a heading, and neither has a word of a wall.
    pub(super) has_topic: bool,
    /// It speaks to the visitor, or names a number to ask about.
    pub(super) speaks_to_visitor: bool,
    /// The title names what another page is for.
    pub(super) has_purpose: bool,
    /// It begins with an explanation for readers.
    pub(super) explains: bool,
    /// It says that the visitor lacks scripts or cookies.
    pub(super) needs: bool,
    /// It says so, and what to do.
    pub(super) lacks: bool,
    /// It says that somebody behaves like a program.
    pub(super) unusual: bool,
    /// It asks first of all for a proof, and names a number to ask about.
    pub(super) names_human_case: bool,
    /// The title speaks of a check, and nothing says of what.
    pub(super) titled_check: bool,
    /// It says in a saying that is known that there were too many requests.
    pub(super) says_too_many: bool,
    /// It asks for a proof in so many words.
    pub(super) asks: bool,
    /// It says so in a saying that is known.
    pub(super) insists: bool,
    /// It says what to do to pass.
    pub(super) task: bool,
    /// It speaks of the visitor's browser and of nothing else that a wall wants.
    pub(super) only_browser: bool,
    /// It asks for nothing, but what it says to do is about a visitor that behaves like a program.
    pub(super) only_strange: bool,
    /// The title says that there were too many requests.
    pub(super) titled_too_many: bool,
    /// Why the request was refused, or whose address, is named beside the refusal.
    pub(super) names_reason: bool,
    /// A saying of those who refuse stands beside a number to ask about.
    pub(super) names_case: bool,
    /// The title is that of an answer with a status that refuses.
    pub(super) says_status: bool,
    /// The title says that the visitor was refused.
    pub(super) titled_denied: bool,
    /// What says it: title or text, and where in that.
    pub(super) place: Place,
}

/// Where a wall says what it wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Title,
    Text(usize),
}

/// Title and text of a page with the words in them.
struct Page<'a> {
    title: &'a str,
    titled: WordMatches,
    text: &'a str,
    said: WordMatches,
}

impl Page<'_> {
    /// Where `find` finds something first in the title and in the text.
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

    /// Points for what the text says at `begin`: so many where that is what it says first of all, so
    /// many where it comes later.
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

    /// Whether the title or the beginning of the text explains something to readers.
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

    /// Points for what the text has of one of these meanings.
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
        let cites = |said: &WordMatches| said.has(Meaning::General) || said.cited() > 0;
        let mut weights = Self {
            own: own(&page.titled) + own(&page.said),
            is_about_refusals: page.is_about_refusals() || cites(&page.titled) || cites(&page.said),
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
            ..Self::default()
        };
        weights.weigh_human(&page);
        weights.weigh_too_many(&page);
        weights.weigh_refusal(&page);
        weights
    }

    fn weigh_human(&mut self, page: &Page<'_>) {
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
        let (title, text) = page.both(|said, text| {
            let pair = said.together(Meaning::Many, Meaning::Request, text);
            earlier(pair, said.first(Meaning::TooMany))
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
            let pair = said.together(Meaning::Refuse, Meaning::Request, text);
            earlier(pair, said.first(Meaning::Denied))
        });
        if title.or(text).is_none() {
            return;
        }
        let both = |meaning| u32::from(page.has(meaning));
        let is_titled = page.title.is_empty() || page.titled.has(Meaning::Denied);
        let start = &page.text[..beginning(page.text, STATUS)];
        self.says_status =
            title.is_some() && names_403(page.title) || is_titled && names_403(start);
        self.titled_denied = page.titled.has(Meaning::Denied);
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

/// The first sentence of `text`, as far as a heading goes.
fn first_sentence(text: &str) -> &str {
    let heading = &text[..beginning(text, HEADING)];
    let ends = |character| matches!(character, '.' | '!' | '?' | '。' | '！' | '？' | '؟');
    heading.find(ends).map_or("", |at| {
        let end = heading[at..].chars().next().map_or(0, char::len_utf8);
        &heading[..at + end]
    })
}

/// Whether `text` has an IPv4 address, as of the visitor.
fn has_address(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.any(|word| word.trim_matches('.').parse::<std::net::Ipv4Addr>().is_ok())
}

/// Whether something is asked in `text`.
fn is_question(text: &str) -> bool {
    text.contains(['?', '？', '؟'])
}

/// Whether a title has the number of a refusal.
fn names_403(title: &str) -> bool {
    title.split(|c: char| !c.is_alphanumeric()).any(|word| word == "403")
}
