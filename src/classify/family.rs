//! Walls that no signature names: recognised by what they say together with how they are built.
//!
//! A wall speaks of one thing only, and leads nowhere. So a family weighs words (`words.rs`) and
//! structure (`structure.rs`) of a page with little text; no word decides alone. Under a status that
//! refuses, words suffice. Under any other one the page must also be built as a wall: no password,
//! no form to fill in, no menus, hardly a link.

use std::cell::OnceCell;

use serde::Deserialize;

use super::{
    compiled::is_refusal,
    page::Page,
    structure::{MANY_LINKS, Structure, links},
    text::beginning,
    words::{Meaning, Said, Words},
};

/// Characters of visible text in which a wall comes to the point.
const BEGINNING: usize = 600;

/// Bytes of visible text before what a page says first of all.
const FIRST: usize = 12;

/// Visible characters of a page that shows nothing yet.
const NOTHING: usize = 60;

/// Bytes of inline script that are looked at.
const SCRIPT: usize = 48 * 1024;

/// A family of walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Asks for a proof of being human or of having a browser.
    HumanCheck,
    /// Shows nothing: a script computes an answer and comes back.
    ScriptCheck,
    /// Says that there were too many requests.
    TooMany,
    /// Refuses the request in the name of a firewall.
    Refusal,
}

/// A page, as families look at it.
#[derive(Debug)]
pub(super) struct Look<'a> {
    status: u16,
    /// Normalised.
    title: &'a str,
    /// Visible text, normalised: its beginning.
    text: &'a str,
    visible: usize,
    source: &'a str,
    is_html: bool,
    /// All of it was seen.
    is_complete: bool,
    weights: OnceCell<Weights>,
    structure: OnceCell<Structure>,
    leads_on: OnceCell<bool>,
}

/// What is known of a page beside its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(super) status: u16,
    /// All of it was read.
    pub(super) is_complete: bool,
}

/// What the words of a page weigh.
#[derive(Debug, Default)]
struct Weights {
    human: u32,
    too_many: u32,
    refusal: u32,
    /// How many words speak of a page of the site itself.
    own: usize,
    /// The title names what another page is for.
    has_purpose: bool,
    /// It asks for a proof in so many words.
    asks: bool,
    /// It says what to do to pass.
    task: bool,
    /// Who refuses, or a number to ask about, is named beside the refusal.
    names_refuser: bool,
    /// What says it: title or text, and where in that.
    place: Place,
}

/// Where a wall says what it wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Title,
    Text(usize),
}

/// How near a page is to a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Near {
    No,
    /// It has something of it.
    Somewhat,
    Yes,
}

impl<'a> Look<'a> {
    pub(super) fn new(page: &'a Page, source: &'a str, seen: Seen) -> Self {
        let text = page.visible.text();
        Self {
            status: seen.status,
            title: page.title(),
            text: &text[..beginning(text, BEGINNING)],
            visible: page.visible.count(),
            source,
            is_html: page.is_html(),
            is_complete: seen.is_complete,
            weights: OnceCell::new(),
            structure: OnceCell::new(),
            leads_on: OnceCell::new(),
        }
    }

    /// Whether the page belongs to `family`.
    pub(super) fn is(&self, family: Family) -> Near {
        if !self.is_html {
            return Near::No;
        }
        match family {
            Family::HumanCheck => self.is_human_check(),
            Family::ScriptCheck => self.is_script_check(),
            Family::TooMany => self.is_too_many(),
            Family::Refusal => self.is_refusal(),
        }
    }

    /// Whether a page that is `Somewhat` of a family is worth a person's look.
    pub(super) fn is_suspect(&self) -> bool {
        let weights = self.weights();
        weights.own == 0 && !weights.has_purpose && !self.is_form_of_site()
    }

    /// What a match rests on: where, and from where on.
    pub(super) fn evidence(&self, family: Family) -> (&'static str, &'a str) {
        match (family, self.weights().place) {
            (Family::ScriptCheck, _) => {
                ("script", self.structure().inline(self.source).next().unwrap_or("").trim_start())
            }
            (_, Place::Text(begin)) => ("text", &self.text[begin..]),
            (_, Place::Title) if self.title.is_empty() => ("text", self.text),
            (_, Place::Title) => ("title", self.title),
        }
    }

    fn weights(&self) -> &Weights {
        self.weights.get_or_init(|| Weights::of(self.title, self.text))
    }

    fn structure(&self) -> &Structure {
        self.structure.get_or_init(|| Structure::of(self.source))
    }

    /// The page has links as pages of sites have.
    pub(super) fn leads_on(&self) -> bool {
        *self.leads_on.get_or_init(|| links(self.source.as_bytes()) >= MANY_LINKS)
    }

    /// Refuses by its status, other than with what sites say of their own pages.
    const fn is_refused(&self) -> bool {
        is_refusal(self.status)
    }

    /// How much the structure speaks for a wall.
    fn built_as_wall(&self) -> u32 {
        let structure = self.structure();
        let signs = [
            structure.noindex,
            structure.refresh,
            structure.challenge,
            structure.links <= 2,
            structure.fields == 0 || structure.fields == 1 && self.weights().task,
        ];
        let signs = signs.into_iter().map(u32::from).sum::<u32>();
        let against = u32::try_from(structure.sections)
            .unwrap_or(u32::MAX)
            .saturating_add(u32::from(structure.links > 5) + u32::from(structure.described));
        signs.saturating_sub(against)
    }

    /// Whether a visitor is asked for what only a site wants to know.
    fn is_form_of_site(&self) -> bool {
        let structure = self.structure();
        structure.password || structure.fields > 1 || structure.single_sign_on
    }

    fn is_human_check(&self) -> Near {
        let weights = self.weights();
        let limited = weights.too_many > weights.human;
        let refused = weights.refusal > weights.human && !weights.asks;
        if weights.human < 3 || limited || refused || self.leads_on() {
            return Near::No;
        }
        if self.is_refused() {
            return if self.is_form_of_site() { Near::Somewhat } else { Near::Yes };
        }
        let structure = self.structure();
        // A form that has nothing but a widget asks too.
        let widget = structure.challenge && structure.forms > 0 && structure.fields == 0;
        let words = weights.human + u32::from(widget);
        let words = words.saturating_sub(2 * u32::try_from(weights.own).unwrap_or(9));
        let built = self.built_as_wall();
        let suffices = words >= 8 && built >= 1 || words >= 4 && built >= 2 && words + built >= 7;
        let is_wall = suffices && !weights.has_purpose && !self.is_form_of_site();
        if is_wall { Near::Yes } else { Near::Somewhat }
    }

    fn is_too_many(&self) -> Near {
        let weights = self.weights();
        if weights.too_many < 3 || self.leads_on() || self.visible > 1_000 {
            return Near::No;
        }
        let short = if self.is_refused() { 1_000 } else { 400 };
        let least = if self.is_refused() { 3 } else { 4 };
        let is_own = weights.own > 0 || weights.has_purpose || self.is_form_of_site();
        let is_wall = weights.too_many >= least && self.visible <= short && !is_own;
        if is_wall { Near::Yes } else { Near::Somewhat }
    }

    fn is_refusal(&self) -> Near {
        let weights = self.weights();
        if weights.refusal < 4 || self.leads_on() {
            return Near::No;
        }
        let own = 2 * u32::try_from(weights.own).unwrap_or(9);
        let words = weights.refusal.saturating_sub(own);
        let suffices = if self.is_refused() {
            words >= 4
        } else {
            words >= 5 && self.built_as_wall() >= 2 && !weights.has_purpose
        };
        let is_wall = weights.names_refuser && suffices && !self.is_form_of_site();
        if is_wall { Near::Yes } else { Near::Somewhat }
    }

    /// Nothing to see but a script that computes something, keeps it and comes back.
    fn is_script_check(&self) -> Near {
        // Most short pages have no script, and need no look at their structure.
        let has_script = [&b"<script"[..], b"<SCRIPT"]
            .iter()
            .any(|tag| memchr::memmem::find(self.source.as_bytes(), tag).is_some());
        if !has_script {
            return Near::No;
        }
        let is_part = !self.is_complete && !self.is_refused();
        if is_part || self.visible > NOTHING || self.source.len() > SCRIPT || self.leads_on() {
            return Near::No;
        }
        let structure = self.structure();
        let is_sites = structure.fields > 0 || structure.sections > 0 || structure.described;
        if structure.scripts == 0 || self.is_form_of_site() || is_sites {
            return Near::No;
        }
        let script: String = structure.inline(self.source).collect::<String>().to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| script.contains(word));
        let keeps = has(&["document.cookie"]) || has(&[".submit()"]);
        let returns = has(&[
            "location.reload",
            "location.href",
            "location.replace",
            "location=",
            "location =",
            ".submit()",
        ]) || structure.refresh;
        let computes = has(&[
            "charcodeat",
            "fromcharcode",
            "eval(",
            "atob(",
            "crypto.subtle",
            "sha256",
            "sha-256",
            "sha1",
            "md5(",
            "aes",
            "_0x",
            "tonumbers(",
            "tohex(",
            "parseint(",
            "math.pow",
        ]);
        match (keeps && returns, computes) {
            (true, true) => Near::Yes,
            (true, false) if structure.noindex => Near::Yes,
            (true, false) => Near::Somewhat,
            _ if structure.noindex && structure.challenge => Near::Yes,
            _ if structure.noindex || structure.challenge => Near::Somewhat,
            _ => Near::No,
        }
    }
}

impl Weights {
    fn of(title: &str, text: &str) -> Self {
        let words = Words::builtin();
        let (titled, said) = (words.find(title), words.find(text));
        let mut weights = Self {
            own: titled.count(Meaning::Own) + said.count(Meaning::Own),
            has_purpose: titled.has(Meaning::Purpose),
            ..Self::default()
        };
        weights.weigh_human(&titled, &said, title, text);
        weights.weigh_too_many(&titled, &said);
        weights.weigh_refusal(&titled, &said);
        weights
    }

    /// Points for what `said` has of one of these meanings.
    fn points(said: &Said, points: &[(Meaning, u32)]) -> u32 {
        points.iter().map(|(meaning, points)| if said.has(*meaning) { *points } else { 0 }).sum()
    }

    fn weigh_human(&mut self, titled: &Said, said: &Said, title: &str, text: &str) {
        let asks = |said: &Said, text: &str| {
            let pair = said.together(Meaning::Human, Meaning::Verify, text);
            let proof = said.first(Meaning::Proof);
            pair.into_iter().chain(proof).map(|word| word.begin).min()
        };
        let browser = |said: &Said, text: &str| {
            said.together(Meaning::Browser, Meaning::Verify, text).map(|w| w.begin)
        };
        let in_title = asks(titled, title).or_else(|| browser(titled, title));
        let in_text = asks(said, text).or_else(|| browser(said, text));
        self.asks = asks(titled, title).or_else(|| asks(said, text)).is_some();
        let check = titled.has(Meaning::SecurityCheck) || said.has(Meaning::SecurityCheck);
        let hints = &[
            (Meaning::Unusual, 2),
            (Meaning::Task, 2),
            (Meaning::Wait, 1),
            (Meaning::Needs, 1),
            (Meaning::Firewall, 1),
            (Meaning::Reference, 1),
        ];
        let hints = Self::points(said, hints);
        let core = 4 * u32::from(in_title.is_some())
            + in_text.map_or(0, |begin| if begin <= FIRST { 4 } else { 3 })
            + Self::points(titled, &[(Meaning::SecurityCheck, 3), (Meaning::Unusual, 2)])
            + said
                .first(Meaning::SecurityCheck)
                .map_or(0, |word| if word.begin <= FIRST { 3 } else { 2 });
        self.task = said.has(Meaning::Task);
        let strange = said.has(Meaning::Unusual) && said.has(Meaning::Task);
        if in_title.is_none() && in_text.is_none() && !check && !strange {
            return;
        }
        self.human = core + hints;
        let in_text = in_text.or_else(|| said.first(Meaning::SecurityCheck).map(|word| word.begin));
        if let (None, Some(begin)) = (in_title, in_text) {
            self.place = Place::Text(begin);
        }
    }

    fn weigh_too_many(&mut self, titled: &Said, said: &Said) {
        let begin = said.first(Meaning::TooMany).map(|word| word.begin);
        self.too_many = 4 * u32::from(titled.has(Meaning::TooMany)) + begin.map_or(0, |_| 3);
        if self.too_many > 0 {
            self.too_many += Self::points(said, &[(Meaning::Wait, 1), (Meaning::Address, 1)]);
        }
        if let (false, Some(begin), 0) = (titled.has(Meaning::TooMany), begin, self.human) {
            self.place = Place::Text(begin);
        }
    }

    fn weigh_refusal(&mut self, titled: &Said, said: &Said) {
        let begin = said.first(Meaning::Denied).map(|word| word.begin);
        if begin.is_none() && !titled.has(Meaning::Denied) {
            return;
        }
        let both = |meaning| u32::from(titled.has(meaning) || said.has(meaning));
        self.names_refuser = both(Meaning::Firewall) + both(Meaning::Unusual) > 0
            || said.has(Meaning::Address)
            || said.has(Meaning::Reference);
        self.refusal = 2 * u32::from(titled.has(Meaning::Denied))
            + begin.map_or(0, |begin| if begin <= FIRST { 3 } else { 2 })
            + 2 * both(Meaning::Firewall)
            + 2 * both(Meaning::Unusual)
            + Self::points(said, &[(Meaning::Address, 1), (Meaning::Reference, 1)]);
        if let (false, Some(begin), 0) =
            (titled.has(Meaning::Denied), begin, self.human + self.too_many)
        {
            self.place = Place::Text(begin);
        }
    }
}
