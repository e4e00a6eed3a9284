//! The words of walls by meaning, from `config/walls/words.yaml`, and a search for them in a text.

use std::{
    collections::{BTreeMap, HashSet},
    sync::LazyLock,
};

use aho_corasick::AhoCorasick;
use serde::Deserialize;

use super::text::normalised;

/// The words as data, by meaning and language.
const FILE: &str = include_str!("../../config/walls/words.yaml");

/// Most bytes between the starts of two words that belong together. Letters outside ASCII have two
/// or three bytes.
const TOGETHER: usize = 120;

/// The meaning of a word on a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Meaning {
    /// Humans and robots.
    Human,
    /// A request for a proof.
    Verify,
    /// The visitor's browser.
    Browser,
    /// A whole phrase that asks for a proof of being human.
    Proof,
    /// A security check.
    SecurityCheck,
    /// The client behaves like a program.
    Unusual,
    /// How to pass.
    Task,
    /// The page is temporary.
    Wait,
    /// What the visitor lacks: scripts, cookies.
    Needs,
    /// The request was refused.
    Denied,
    /// The visitor, its address or its request was blocked.
    Banned,
    /// In a title: something went wrong.
    Trouble,
    /// A firewall, or the threat that it refuses.
    Firewall,
    /// The address of the refused client.
    Address,
    /// A reference number.
    Reference,
    /// A phrase that reports too many requests.
    TooMany,
    /// Refusing.
    Refuse,
    /// The object of a refusal or a count.
    Request,
    /// The visitor as the object of a refusal.
    Refused,
    /// Too much.
    Many,
    /// In a title: the purpose of an ordinary page.
    Purpose,
    /// The start of an explanation for readers.
    Explain,
    /// An ordinary page of the site: an account, an age check, maintenance.
    Own,
    /// A form that must be sent again, its token, a login that failed, or a request to other people.
    Input,
    /// About events that may happen, or that happened to others: news, help, a policy.
    General,
    /// Addresses the visitor, or is about this one request.
    Visitor,
}

/// The words, compiled.
pub(super) struct Words {
    automaton: AhoCorasick,
    /// For each word its meaning and its borders.
    entries: Vec<(Meaning, Border)>,
}

/// Whether a word must begin and end at a word border.
#[derive(Debug, Clone, Copy)]
struct Border {
    /// It must begin at a border.
    begins: bool,
    /// It must end at a border.
    ends: bool,
}

/// The words of a text, in order.
#[derive(Debug, Default)]
pub(super) struct WordMatches {
    words: Vec<Word>,
    /// One bit for each meaning that occurs.
    meanings: u32,
    /// How many of them are quoted: a quotation mark stands before them.
    cited: usize,
}

/// A word of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    meaning: Meaning,
    /// Its first byte.
    pub(super) begin: usize,
}

impl Words {
    /// The built-in words.
    ///
    /// # Panics
    /// Never: the file is part of the binary, and tests read it.
    pub(super) fn builtin() -> &'static Self {
        static WORDS: LazyLock<Words> = LazyLock::new(Words::compile);
        &WORDS
    }

    fn compile() -> Self {
        let file: BTreeMap<Meaning, BTreeMap<String, Vec<String>>> =
            serde_yaml::from_str(FILE).expect("config/walls/words.yaml is read by tests");
        let (mut patterns, mut entries) = (Vec::new(), Vec::new());
        let mut known = HashSet::new();
        for (meaning, languages) in file {
            for word in languages.into_values().flatten() {
                let (word, ends) = word.strip_suffix('$').map_or((&*word, false), |w| (w, true));
                let pattern = normalised(word).trim().to_owned();
                // Languages share words. A word counts once.
                if known.insert((meaning, pattern.clone(), ends)) {
                    let begins = pattern.chars().next().is_some_and(is_in_word);
                    entries.push((meaning, Border { begins, ends }));
                    patterns.push(pattern);
                }
            }
        }
        let automaton = AhoCorasick::new(patterns);
        Self { automaton: automaton.expect("a test compiles the words"), entries }
    }

    /// All words of `text`, in order. `text` must be normalised.
    pub(super) fn find(&self, text: &str) -> WordMatches {
        let mut said = WordMatches::default();
        for found in self.automaton.find_overlapping_iter(text) {
            let (meaning, border) = self.entries[found.pattern().as_usize()];
            let goes_on = |character: Option<char>| character.is_some_and(is_in_word);
            let before = border.begins && goes_on(text[..found.start()].chars().next_back());
            let next = text[found.end()..].chars().next();
            // The name in an e-mail address does not count as a word.
            let after = border.ends && (goes_on(next) || next == Some('@'));
            if !before && !after && !begins_host(&text[found.end()..]) {
                said.words.push(Word { meaning, begin: found.start() });
                said.meanings |= meaning.bit();
                said.cited += usize::from(meaning.is_saying() && is_cited(&text[..found.start()]));
            }
        }
        said.words.sort_by_key(|word| word.begin);
        said
    }
}

/// Whether this character continues a word. Scripts without blanks have no word borders.
fn is_in_word(character: char) -> bool {
    character.is_alphanumeric()
        && !matches!(character, '\u{e00}'..='\u{e7f}' | '\u{2e80}'..='\u{d7af}' | '\u{f900}'..='\u{faff}')
}

/// Whether a word continues as a host name: `api` in `api.site.example` says nothing about the page.
fn begins_host(after: &str) -> bool {
    let mut characters = after.chars();
    characters.next() == Some('.') && characters.next().is_some_and(char::is_alphanumeric)
}

/// Whether the text after `before` is quoted.
fn is_cited(before: &str) -> bool {
    before.ends_with(['“', '„', '«', '「', '『', '»']) || before.ends_with(" \"")
}

impl Meaning {
    const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Whether its words are complete phrases of walls.
    const fn is_saying(self) -> bool {
        matches!(self, Self::Proof | Self::Denied | Self::TooMany)
    }
}

impl WordMatches {
    /// Whether it contains no words.
    pub(super) const fn is_empty(&self) -> bool {
        self.meanings == 0
    }

    /// Whether it contains no words of another meaning.
    pub(super) fn has_only(&self, meaning: Meaning) -> bool {
        self.meanings & !meaning.bit() == 0
    }

    /// The first word of this meaning.
    pub(super) fn first(&self, meaning: Meaning) -> Option<Word> {
        self.words.iter().find(|word| word.meaning == meaning).copied()
    }

    /// Whether there is a word of this meaning.
    pub(super) const fn has(&self, meaning: Meaning) -> bool {
        self.meanings & meaning.bit() != 0
    }

    /// How many phrases of walls are quoted, which suggests a page about walls.
    pub(super) const fn cited(&self) -> usize {
        self.cited
    }

    /// How many words of this meaning there are.
    pub(super) fn count(&self, meaning: Meaning) -> usize {
        self.words.iter().filter(|word| word.meaning == meaning).count()
    }

    /// The first place where words of both meanings occur in one sentence of `text`. Returns the
    /// one that begins earlier.
    pub(super) fn together(&self, one: Meaning, other: Meaning, text: &str) -> Option<Word> {
        if !self.has(one) || !self.has(other) {
            return None;
        }
        let of = |meaning| self.words.iter().filter(move |word| word.meaning == meaning);
        of(one)
            .flat_map(|first| of(other).map(move |second| (first, second)))
            .map(|(a, b)| if a.begin <= b.begin { (*a, *b) } else { (*b, *a) })
            .filter(|(a, b)| b.begin - a.begin <= TOGETHER && !ends(&text[a.begin..b.begin]))
            .map(|(a, _)| a)
            .min_by_key(|word| word.begin)
    }
}

/// Whether `text` contains the end of a sentence.
fn ends(text: &str) -> bool {
    text.contains(". ") || text.contains(['!', '?', '。', '！', '？'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_from_their_beginning_and_in_scripts_without_blanks_anywhere() {
        let words = Words::builtin();
        let has = |text: &str, meaning| words.find(&normalised(text)).has(meaning);
        assert!(has("VERIFICATION", Meaning::Verify));
        assert!(!has("unverified", Meaning::Verify));
        assert!(has("a bot.", Meaning::Human) && !has("bottom", Meaning::Human));
        assert!(has("请您完成安全验证后继续", Meaning::SecurityCheck));
        assert!(has("Подтвердите, что Вы не робот", Meaning::Proof));
        assert!(has("confirme que você não é um robô", Meaning::Proof));
    }

    #[test]
    fn words_count_together_only_within_a_sentence() {
        let words = Words::builtin();
        let together = |text: &str| {
            let text = normalised(text);
            words.find(&text).together(Meaning::Human, Meaning::Verify, &text).is_some()
        };
        assert!(together("Please confirm that a human sent this"));
        assert!(!together("Please confirm. A human will answer."));
        assert!(!together(&format!("confirm {} human", "and so on ".repeat(12))));
    }
}
