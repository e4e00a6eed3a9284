//! The keys of the rule file in one table: names, types, ranges, defaults and descriptions.
//!
//! The reader ([`super::section`]), the JSON Schema, `docs/rule-file.md` and "did you mean" all use
//! it, so they cannot disagree. Defaults are written as in a rule file and read by the same code.

/// Defines a section: the comments become the documentation of the section and of its keys.
macro_rules! section {
    ($(#[doc = $about:literal])* $section:ident = $name:literal {
        $($(#[doc = $doc:literal])* $key:ident: $kind:expr, $default:expr;)*
    }) => {
        pub(in crate::config) static $section: Section = Section {
            name: $name,
            doc: concat!($($about),*).trim_ascii_start(),
            keys: &[$(super::Key {
                name: stringify!($key),
                kind: $kind,
                default: $default,
                doc: concat!($($doc),*).trim_ascii_start(),
            }),*],
        };
    };
}

mod detect;
mod rule;
mod top;

pub(super) use detect::{DETECT, DETECT_ALL, EXPECT, LOCATION, LONGEST_PATTERN};
pub(super) use rule::{COOLDOWN, EACH_USER, LEARN, MATCH, RETRY, RULE, SILENCE};
pub(super) use top::{
    ADMIN, AUTH, CA, DEFAULTS, EGRESS, FILE, INCLUDED, INSPECT, LIMITS, LOG, REFUSE, STORE,
    TIMEOUTS,
};

const OFF: Kind = Kind::Word(&["off"]);
const AUTO: Kind = Kind::Word(&["auto"]);

/// A mapping with fixed keys.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name in the documentation.
    pub(super) name: &'static str,
    /// Its purpose.
    pub(super) doc: &'static str,
    /// Its keys, in the order of the documentation.
    pub(super) keys: &'static [Key],
}

/// A key of a section.
#[derive(Debug)]
pub(super) struct Key {
    /// Its name.
    pub(super) name: &'static str,
    /// Its allowed values.
    pub(super) kind: Kind,
    /// Its value if the key is absent.
    pub(super) default: Default,
    /// Its description, in one or two sentences.
    pub(super) doc: &'static str,
}

/// The value of an absent key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Default {
    /// The key must be there.
    Required,
    /// None; the text says what that means.
    Absent(&'static str),
    /// This value, written as in the file.
    Is(&'static str),
}

/// The allowed values of a key.
#[derive(Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A duration between these two.
    Duration(&'static str, &'static str),
    /// A duration, or a range of durations (`30s-60s`), between these two.
    Span(&'static str, &'static str),
    /// A number of bytes between these two.
    Size(&'static str, &'static str),
    /// A whole number between these two.
    Count(u64, u64),
    /// A number between these two.
    Factor(f64, f64),
    /// Tokens per time, `3/s`.
    Rate,
    /// Tokens in a fixed window, `1000/h`.
    Quota,
    /// `22:00-06:00 Europe/Berlin`.
    Hours,
    /// `25%`.
    Share,
    /// `50% of 20`.
    Ratio,
    /// An address with a port.
    Address,
    /// A URL of Redis or Valkey.
    StoreUrl,
    /// A URL of an upstream proxy.
    ProxyUrl,
    /// Any text up to this many characters.
    Text(usize),
    /// Text that is never shown.
    Secret,
    /// A file or folder, relative to the rule file's folder.
    Path,
    /// A rule's or signature's name.
    Name,
    /// A host pattern.
    Host,
    /// A path pattern.
    Glob,
    /// A network in CIDR form.
    Network,
    /// An entry of the egress guard.
    Egress,
    /// A status, `503` or `5xx`.
    Status,
    /// An HTTP method.
    Method,
    /// A mapping with fixed keys.
    Section(&'static Section),
    /// A list.
    List(&'static Kind),
    /// One or a list.
    OneOrMany(&'static Kind),
    /// A mapping with free keys: the name of a key in the documentation, and the allowed values.
    Map(&'static str, &'static Kind),
    /// Any of these.
    Either(&'static [Kind]),
}

impl Section {
    /// Whether keys that begin with `x-` are allowed, for values that aliases refer to.
    pub(super) fn has_anchors(&self) -> bool {
        matches!(self.name, "file" | "included")
    }

    /// The key `name`.
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Kind {
    /// The allowed section, if any.
    pub(super) fn section(&self) -> Option<&'static Section> {
        match self {
            Self::Section(section) => Some(section),
            Self::Either(kinds) => kinds.iter().find_map(Self::section),
            Self::List(inner) | Self::OneOrMany(inner) => inner.section(),
            _ => None,
        }
    }

    /// The allowed words.
    pub(super) fn all_words(&self) -> Vec<&'static str> {
        match self {
            Self::Word(words) => words.to_vec(),
            Self::Either(kinds) => kinds.iter().flat_map(Self::all_words).collect(),
            Self::List(inner) | Self::OneOrMany(inner) => inner.all_words(),
            _ => Vec::new(),
        }
    }

    /// Whether the value must never be shown.
    pub(super) fn is_secret(&self) -> bool {
        match self {
            Self::Secret | Self::StoreUrl | Self::ProxyUrl => true,
            Self::List(inner) | Self::OneOrMany(inner) | Self::Map(_, inner) => inner.is_secret(),
            Self::Either(kinds) => kinds.iter().any(Self::is_secret),
            _ => false,
        }
    }

    /// The kind in words, for messages and the documentation.
    pub(super) fn words(&self) -> String {
        let words = |list: &[&str]| {
            list.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" | ")
        };
        match self {
            Self::Flag => "`true` | `false`".into(),
            Self::Word(list) => words(list),
            Self::Duration(min, max) => format!("a duration, `{min}` to `{max}`"),
            Self::Span(min, max) => {
                format!("a duration or a range such as `30s-60s`, `{min}` to `{max}`")
            }
            Self::Size(min, max) => format!("a size, `{min}` to `{max}`"),
            Self::Count(min, max) => format!("a whole number, {min} to {max}"),
            Self::Factor(min, max) => format!("a number, {min} to {max}"),
            Self::Rate => "a rate such as `3/s` (`/s` `/m` `/h` `/d`)".into(),
            Self::Quota => "a quota such as `1000/h` (`/s` `/m` `/h` `/d`)".into(),
            Self::Hours => "a time of day and a zone such as `22:00-06:00 Europe/Berlin`".into(),
            Self::Share => "a share such as `25%`".into(),
            Self::Ratio => "a share of the last verdicts such as `50% of 20`".into(),
            Self::Address => "an address with a port such as `127.0.0.1:3128`".into(),
            Self::StoreUrl => "a URL such as `redis://127.0.0.1:6379`".into(),
            Self::ProxyUrl => "a URL such as `http://10.0.0.7:3128`".into(),
            Self::Text(most) => format!("text, up to {most} characters"),
            Self::Secret => "a secret text".into(),
            Self::Path => "a path, relative to the rule file's folder".into(),
            Self::Name => "a name of letters, digits, `_`, `.` and `-`".into(),
            Self::Host => {
                "a host pattern: `*`, `shop.example`, `*.shop.example` or an address".into()
            }
            Self::Glob => "a path pattern such as `/search*`".into(),
            Self::Network => "a network such as `10.0.0.0/8`".into(),
            Self::Egress => {
                "`loopback`, `private`, `link_local`, a network or a host pattern, each with or \
                 without `:port`"
                    .into()
            }
            Self::Status => "a status, `503` or `5xx`".into(),
            Self::Method => "a method such as `GET`".into(),
            Self::Section(section) => {
                let first = section.keys.iter().take(3);
                let keys: Vec<_> = first.map(|key| format!("`{}`", key.name)).collect();
                let more = if section.keys.len() > 3 { ", ..." } else { "" };
                format!("a mapping ({}{more})", keys.join(", "))
            }
            Self::List(inner) => format!("a list of: {}", inner.words()),
            Self::OneOrMany(inner) => format!("one or a list of: {}", inner.words()),
            Self::Map(key, inner) => format!("a mapping from {key} to {}", inner.words()),
            Self::Either(kinds) => kinds.iter().map(Self::words).collect::<Vec<_>>().join(" | "),
        }
    }
}

/// Every section, once, in the order of the documentation; `defaults` has the keys of a rule.
#[rustfmt::skip]
pub(super) static SECTIONS: &[&Section] = &[
    &FILE, &ADMIN, &STORE, &RULE, &MATCH, &EACH_USER, &LEARN, &COOLDOWN, &RETRY, &DETECT,
    &DETECT_ALL, &LOCATION, &EXPECT, &AUTH, &EGRESS, &INSPECT, &TIMEOUTS, &LIMITS, &CA, &REFUSE,
    &LOG, &INCLUDED,
];
