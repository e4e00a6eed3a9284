//! Recognises walls that no signature names, by their words and their structure.
//!
//! A family weighs the words (`weights.rs`) and the structure (`structure.rs`) of a short page. No single word decides.
//! If the status refuses, words suffice. Otherwise the page must also have the structure of a wall: no password, no
//! form to fill in, no menus, few links. Words and structure that ordinary pages share with walls must not suffice;
//! each such guard has a test in `integration-tests/tests/classify/families.rs`.

use std::cell::OnceCell;

use super::{
    head::is_refusal,
    page::Page,
    script_acts::ScriptActs,
    signature::Family,
    structure::{Structure, has_many_links, script_or_meta},
    text::beginning,
    weights::{Place, Weights},
};

/// A wall states its demand within this many characters of visible text.
const OPENING_TEXT: usize = 600;

/// A server's own refusal has at most this many visible characters.
const MAX_BARE_TEXT: usize = 250;

/// A page that does not show anything yet has at most this many visible characters.
const MAX_EMPTY_TEXT: usize = 60;

/// A page that only names itself has at most this many visible characters beside its title.
const MAX_STUB_TEXT: usize = 24;

/// A page that only demands a proof has at most this many visible characters.
const MAX_DEMAND: usize = 80;

/// A page with only a widget has at most this many visible characters.
const MAX_WIDGET_TEXT: usize = 250;

/// Pages with more bytes are not searched for scripts.
const MAX_SCRIPT_BYTES: usize = 48 * 1024;

/// Matches one page against the families. Parses and weighs only what a family needs.
#[derive(Debug)]
pub(super) struct FamilyMatcher<'a> {
    status: u16,
    /// Normalised.
    title: &'a str,
    /// The beginning of the visible text, normalised.
    text: &'a str,
    visible: usize,
    source: &'a str,
    is_html: bool,
    /// Whether the whole body was read.
    is_complete: bool,
    weights: OnceCell<Weights>,
    structure: OnceCell<Structure>,
    has_many_links: OnceCell<bool>,
}

/// The response's status, and how much of its body was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(super) status: u16,
    /// Whether the whole body was read.
    pub(super) is_complete: bool,
}

/// How well a page fits a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    No,
    /// Some words or some structure of the family.
    Partial,
    Full,
}

impl<'a> FamilyMatcher<'a> {
    pub(super) fn new(page: &'a Page, source: &'a str, extent: Extent) -> Self {
        let text = page.visible.text();
        Self {
            status: extent.status,
            title: page.title(),
            text: &text[..beginning(text, OPENING_TEXT)],
            visible: page.visible.count(),
            source,
            is_html: page.is_html(),
            is_complete: extent.is_complete,
            weights: OnceCell::new(),
            structure: OnceCell::new(),
            has_many_links: OnceCell::new(),
        }
    }

    /// Whether the page belongs to `family`.
    pub(super) fn is(&self, family: Family) -> Fit {
        if !self.is_html {
            return Fit::No;
        }
        match family {
            Family::HumanCheck => self.is_human_check(),
            Family::ScriptCheck => self.is_script_check(),
            Family::TooMany => self.is_too_many(),
            Family::Refusal => self.is_refusal(),
        }
    }

    /// Whether a page that fits a family partially should be reported as a suspect.
    pub(super) fn is_suspect(&self) -> bool {
        let weights = self.weights();
        weights.own == 0 && !weights.has_purpose && !self.is_form_of_site()
    }

    /// The evidence of a match: the part of the page, and its text from the evidence on.
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

    /// Whether the page has as many links as an ordinary page.
    pub(super) fn has_many_links(&self) -> bool {
        *self.has_many_links.get_or_init(|| has_many_links(self.source.as_bytes()))
    }

    /// Whether the status refuses. Statuses that sites use for their own pages (404, 410) do not.
    const fn is_refused(&self) -> bool {
        is_refusal(self.status)
    }

    /// Whether the status refuses and is not used for logins or maintenance.
    const fn is_stopped(&self) -> bool {
        matches!(self.status, 403 | 418 | 429..=450 | 452..=499)
    }

    /// Whether the page has no title, or only the name of its host.
    fn is_untitled(&self) -> bool {
        self.title.is_empty()
            || !self.title.contains(char::is_whitespace) && self.title.contains('.')
    }

    /// Whether the status reports success.
    const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }

    /// Points for a structure that walls have.
    fn built_as_wall(&self) -> u32 {
        let structure = self.structure();
        let signs = [
            structure.noindex,
            structure.refresh,
            structure.challenge,
            structure.links <= 3,
            structure.fields == 0
                || structure.fields == 1 && (self.weights().task || structure.images > 0),
        ];
        let signs = signs.into_iter().map(u32::from).sum::<u32>();
        // With `noindex`, one section and the description count as the site's template.
        let sections = structure.sections.saturating_sub(usize::from(structure.noindex));
        let described = structure.described && !structure.noindex;
        let against = u32::try_from(sections)
            .unwrap_or(u32::MAX)
            .saturating_add(u32::from(structure.links > 5) + u32::from(described));
        signs.saturating_sub(against)
    }

    /// Whether the page contains only text.
    fn is_plain(&self) -> bool {
        let structure = self.structure();
        structure.links == 0 && structure.forms == 0 && !structure.has_content()
    }

    /// Whether the page asks for data that a wall does not need.
    fn is_form_of_site(&self) -> bool {
        let structure = self.structure();
        structure.password || structure.fields > 1 || structure.single_sign_on
    }

    fn is_human_check(&self) -> Fit {
        let weights = self.weights();
        let limited = weights.too_many > weights.human
            && !weights.insists
            && (weights.titled_too_many || !weights.asks)
            || self.only_names_check();
        let offers = weights.insists || weights.task;
        let asks = weights.asks && (offers || self.structure().has_means());
        let refused = weights.refusal > weights.human && !asks;
        if limited || refused {
            return Fit::No;
        }
        if weights.human < 3 && weights.unusual && self.is_stopped() {
            let asks = self.structure().challenge && !self.is_form_of_site();
            return if asks { Fit::Full } else { Fit::No };
        }
        // Most pages end here, before their links and structure are parsed.
        if weights.human < 3 {
            return if self.is_bare_widget() && !self.has_many_links() {
                Fit::Full
            } else {
                Fit::No
            };
        }
        if self.has_many_links() {
            return Fit::No;
        }
        if self.is_refused() {
            return if self.is_form_of_site() { Fit::Partial } else { Fit::Full };
        }
        let structure = self.structure();
        // A form with only a widget asks as well, and so does a widget alone.
        let is_alone = structure.forms > 0 || self.visible <= MAX_STUB_TEXT;
        let widget = structure.challenge && is_alone && structure.fields == 0;
        let words = weights.human + u32::from(widget);
        let words = words.saturating_sub(2 * u32::try_from(weights.own).unwrap_or(9));
        let has_means = structure.has_means() || structure.challenge || structure.refresh;
        // A page with a heading but without any means to pass is an article about checks.
        let can_pass = has_means || !weights.is_headed || weights.names_case;
        let built = self.built_as_wall().saturating_sub(u32::from(!can_pass));
        // A page that says how to pass its security check is about nothing else.
        let has_topic = weights.has_topic && !(weights.task && weights.names_check);
        let least = 7 + 2 * u32::from(has_topic);
        let suffices = words >= 8 && built >= 1
            || words >= 4 && built >= 2 && words + built >= least
            || weights.lacks && structure.challenge && built >= 3;
        let is_check = suffices && self.lets_pass() && !self.is_other_than_check();
        let is_wall = is_check || self.only_says_check();
        if is_wall { Fit::Full } else { Fit::Partial }
    }

    /// Whether the page could let its visitor pass. Any page has scripts and buttons, so they count only together with
    /// words that say how to go on.
    fn lets_pass(&self) -> bool {
        let (structure, weights) = (self.structure(), self.weights());
        let takes_answer = structure.forms > 0 && structure.fields == 0;
        let runs = structure.scripts > 0 && self.visible == 0;
        if self.has_marks() || takes_answer || runs {
            return true;
        }
        // A page without any such element may have lost it when it was saved, unless it is long.
        let is_short = self.visible <= MAX_BARE_TEXT && weights.own == 0;
        let is_whole = structure.has_means() || is_short || weights.names_case;
        let is_checked = weights.names_check && weights.speaks_to_visitor;
        let says_how = weights.task || weights.waits || weights.needs;
        // A page that accuses its visitor of being a program and asks for a proof needs to say no more.
        let says_how = says_how || weights.unusual && weights.insists;
        is_whole && (says_how || is_checked || weights.titled_check)
    }

    /// Whether the page is built like a check, whatever it says.
    fn has_marks(&self) -> bool {
        let structure = self.structure();
        structure.challenge || structure.refresh || structure.noindex
    }

    /// Whether a page that mentions a check is an ordinary page, or an article about checks.
    fn is_other_than_check(&self) -> bool {
        let (structure, weights) = (self.structure(), self.weights());
        let is_strange = weights.only_strange && !structure.challenge && !structure.noindex;
        // The only field of a wall is for the answer.
        let shows_picture =
            weights.insists && structure.images > 0 && self.visible <= MAX_WIDGET_TEXT;
        let wants_data =
            structure.fields > 0 && !weights.task && !shows_picture && !weights.names_human_case;
        // A page that only mentions the browser may have a widget instead of text.
        let is_widget = structure.challenge && self.visible == 0 && !structure.has_root;
        weights.has_purpose
            || weights.explains
            || weights.is_statement() && !structure.challenge
            || weights.only_browser && !is_widget
            || self.only_mentions_check()
            || self.is_own_page()
            || is_strange
            || wants_data
            || self.is_form_of_site()
    }

    /// Whether the page speaks to nobody and offers nothing to pass with.
    fn only_mentions_check(&self) -> bool {
        let (structure, weights) = (self.structure(), self.weights());
        let waits = weights.waits && (weights.names_check || weights.insists);
        let runs = structure.scripts > 0 && waits;
        let says_more = weights.task || weights.unusual || weights.needs || runs;
        let announces_check = says_more || weights.titled_check || weights.titled_wait;
        !self.is_offer() && !weights.speaks_to_visitor && !announces_check
    }

    /// Whether the page belongs to the site itself: it addresses its users or customers.
    fn is_own_page(&self) -> bool {
        let (structure, weights) = (self.structure(), self.weights());
        // A wall offers a choice to ask for a human, or, below its widget, where its problems can be reported. A poll
        // has its choice above the widget.
        let is_poll = structure.chooses_first && structure.challenge;
        let lets_choose = structure.chooses && !structure.challenge && !weights.asks || is_poll;
        let is_article = (weights.is_headed || !self.is_offer()) && !weights.names_case;
        lets_choose || weights.own > 1 || weights.own > 0 && is_article
    }

    /// Whether the page is built like a check, or has another element than a script to act on.
    fn is_offer(&self) -> bool {
        self.has_marks() || self.structure().offers
    }

    /// Whether the page says that it is a check and contains nothing else. An ordinary page shows its content.
    fn only_says_check(&self) -> bool {
        let weights = self.weights();
        let is_own = weights.own > 0 || weights.has_purpose || weights.explains;
        // Beside a title, a single demand may take a sentence.
        let most = if weights.insists && weights.demands { MAX_DEMAND } else { MAX_STUB_TEXT };
        if weights.human < 4 || is_own || self.visible > most || !self.is_complete {
            return false;
        }
        let structure = self.structure();
        let is_alone = structure.images == 0 && !structure.has_means();
        self.is_plain() && is_alone && !structure.has_root
    }

    /// Whether the page reports too many requests and only mentions a check that nobody can pass there.
    fn only_names_check(&self) -> bool {
        let weights = self.weights();
        let says_so = weights.says_too_many && !weights.task && !weights.titled_check;
        says_so && !self.structure().has_means() && !self.structure().challenge
    }

    /// Whether the page has only a widget and a title that mentions a check.
    fn is_bare_widget(&self) -> bool {
        let weights = self.weights();
        let is_own = weights.own > 0 || weights.has_purpose || weights.explains;
        if !weights.titled_check || is_own || self.visible > MAX_WIDGET_TEXT || !self.is_complete {
            return false;
        }
        let structure = self.structure();
        let is_bare = structure.links <= 1 && structure.sections == 0 && !structure.described;
        let is_offered = structure.forms > 0 || weights.task;
        let asks = structure.challenge && is_offered && structure.fields == 0;
        is_bare && asks && !self.is_form_of_site()
    }

    fn is_too_many(&self) -> Fit {
        let weights = self.weights();
        let insists = weights.insists || weights.asks && !weights.titled_too_many;
        let insists = insists && !self.only_names_check();
        let asks = insists || weights.task && weights.human >= weights.too_many;
        let is_ban = !weights.says_too_many && weights.refusal > weights.too_many;
        if weights.too_many < 3 || asks || is_ban || self.has_many_links() || self.visible > 1_000 {
            return Fit::No;
        }
        let short = if self.is_refused() { 1_000 } else { 400 };
        let least = if self.is_refused() { 3 } else { 4 };
        let is_about_it = !self.is_refused() && weights.is_about_refusals;
        let is_own =
            weights.own > 0 || weights.has_purpose || is_about_it || self.is_form_of_site();
        // An explanation of a status addresses nobody.
        let is_said = weights.speaks_to_visitor || weights.waits || self.visible <= MAX_EMPTY_TEXT;
        let is_wall = weights.too_many >= least
            && self.visible <= short
            && !is_own
            && (is_said || self.is_refused());
        if is_wall { Fit::Full } else { Fit::Partial }
    }

    fn is_refusal(&self) -> Fit {
        let weights = self.weights();
        let refuses = weights.refusal >= 4 || weights.says_status || weights.is_banned;
        // A form without its token, or a failed login, says nothing about the visitor's address.
        if !refuses || weights.is_about_input || self.has_many_links() {
            return Fit::No;
        }
        let own = 2 * u32::try_from(weights.own).unwrap_or(9);
        let words = weights.refusal.saturating_sub(own);
        // A server's own response has only a status or a reference number.
        let is_short = self.visible <= MAX_BARE_TEXT;
        let is_case = weights.titled_denied && weights.names_case && words >= 4;
        let is_status = weights.says_status && self.structure().links == 0;
        let is_ban = weights.is_banned && weights.own == 0 && self.structure().links <= 1;
        let is_bare = is_short && self.is_success() && (is_status || is_case || is_ban)
            || is_short && self.is_refused() && is_ban;
        let suffices = if self.is_refused() {
            words >= 4 || is_bare
        } else {
            let is_plain = weights.may_refuse && weights.own == 0 && self.is_plain();
            let built = self.built_as_wall() + u32::from(is_plain);
            let says_so = words >= 5 && built >= 2 || words >= 4 && built >= 3;
            let is_addressed = weights.speaks_to_visitor || weights.opens_denied;
            // A site that refuses something to its customer names no firewall, or uses more words of its trade.
            let is_own = weights.own > usize::from(weights.names_refuser);
            let is_said = says_so && is_addressed && !is_own;
            let is_about_it = weights.has_purpose || weights.is_about_refusals;
            (is_said || is_bare && built >= 2) && !is_about_it
        };
        let is_named =
            weights.names_reason || weights.names_case && (self.is_refused() || self.is_success());
        let is_wall = (is_named || is_bare) && suffices && !self.is_form_of_site();
        if is_wall { Fit::Full } else { Fit::Partial }
    }

    /// A page without text whose script computes a value, stores it and loads the page again.
    fn is_script_check(&self) -> Fit {
        let (may_have_script, may_have_meta) = script_or_meta(self.source.as_bytes());
        if !may_have_script {
            let is_sent_on = may_have_meta
                && self.visible <= MAX_EMPTY_TEXT
                && self.structure().refresh_to_check;
            return if is_sent_on { Fit::Full } else { Fit::No };
        }
        // A request to enable scripts is only for visitors without scripts.
        let is_empty = self.visible <= MAX_EMPTY_TEXT
            || self.visible <= MAX_WIDGET_TEXT && self.weights().needs;
        if !is_empty || self.has_many_links() {
            return Fit::No;
        }
        // Most pages have a title of their own, so their structure need not be parsed.
        let may_be_shell = self.is_untitled() || self.weights().titled_denied;
        if may_be_shell && self.is_challenge_shell() {
            return Fit::Full;
        }
        let is_part = !self.is_complete && !self.is_refused();
        if is_part || self.source.len() > MAX_SCRIPT_BYTES {
            return Fit::No;
        }
        let structure = self.structure();
        let is_other = structure.scripts == 0 || self.is_form_of_site() || structure.has_content();
        if is_other { Fit::No } else { self.runs_check() }
    }

    /// A page without text whose title or scripts are named after a challenge.
    fn is_challenge_shell(&self) -> bool {
        let (structure, weights) = (self.structure(), self.weights());
        if structure.links > 0 || structure.fields > 0 {
            return false;
        }
        let shows_nothing = self.visible == 0;
        let sends_on = structure.challenge
            && structure.refresh
            && self.title.is_empty()
            && !structure.has_content();
        let calls = structure.calls_challenge
            && structure.other_sources == 0
            && self.is_untitled()
            && !structure.has_content()
            && !structure.has_root;
        let leads_to_login = || ScriptActs::of(structure.inline(self.source)).names_login;
        let refuses = weights.titled_denied && structure.scripts > 0 && !leads_to_login();
        shows_nothing && sends_on
            || self.is_complete && weights.needs && calls
            || self.is_complete && shows_nothing && refuses
    }

    /// Judges a page without text by what its scripts do.
    fn runs_check(&self) -> Fit {
        let (structure, weights) = (self.structure(), self.weights());
        let script = ScriptActs::of(structure.inline(self.source));
        let leaves = structure.noindex || structure.refresh;
        let challenges = structure.challenge && leaves && script.has_cookie;
        // The page consists of code that unpacks and runs other code.
        let is_alone = structure.scripts == 1 && structure.links == 0 && structure.forms == 0;
        if structure.refresh_to_check || script.unpacks && is_alone {
            return Fit::Full;
        }
        let is_bare = self.title.is_empty() && self.visible == 0;
        // The page consists of external scripts and is hidden from search engines.
        let is_hidden = structure.noindex
            && is_bare
            && !structure.refresh
            && structure.links + structure.images == 0
            && !structure.has_root
            && !script.has_location;
        // A refusal without text but with a script expects the script to run.
        let is_to_run = (self.is_stopped() || self.status == 202) && self.is_complete && is_bare;
        // The page asks to wait, and only a reload of itself can follow.
        let waits = weights.titled_wait
            && self.is_complete
            && structure.other_sources + structure.links == 0
            && !structure.has_root
            && (structure.challenge || self.visible == 0 && script.reloads);
        let comes_back = script.keeps && (script.returns || structure.refresh) || challenges;
        match (comes_back, script.computes) {
            (true, true) => Fit::Full,
            (true, false) if structure.noindex || weights.insists => Fit::Full,
            (true, false) if weights.needs && weights.names_check => Fit::Full,
            (true, false) => Fit::Partial,
            _ if is_hidden || is_to_run || waits => Fit::Full,
            _ if structure.challenge && (structure.noindex || self.is_stopped()) => Fit::Full,
            _ if structure.noindex || structure.challenge => Fit::Partial,
            _ => Fit::No,
        }
    }
}
