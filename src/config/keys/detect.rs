//! The keys of signatures.

use super::{
    Default::{Absent, Is, Required},
    Kind, Section, key,
};

/// Longest pattern, in bytes: as long as a line of a page that is worth looking for.
pub(in crate::config) const LONGEST_PATTERN: usize = 512;

/// Verdicts that an answer can have.
const ANSWERS: Kind = Kind::Word(&[
    "ok",
    "403_forbidden",
    "429_rate_limited",
    "captcha",
    "cloudflare_challenge",
    "blank_page",
]);

/// An entry of `detect`.
pub(in crate::config) static DETECT: Section = Section {
    name: "detect",
    doc: "A signature: what a certain answer looks like. Every condition given must hold; at least \
          one is needed. \
          Upper and lower case are alike.",
    keys: &[
        key("name", Kind::Name, Required, "Its name, shown as evidence."),
        key(
            "verdict",
            ANSWERS,
            Required,
            "What such an answer is; `ok` overrules a built-in signature.",
        ),
        key(
            "vendor",
            Kind::Text(LONGEST_PATTERN),
            Absent("no vendor is named"),
            "Whose wall it is, shown as evidence.",
        ),
        key("confidence", Kind::Word(&["high", "low"]), Is("high"), "How sure a match is."),
        key(
            "action",
            Kind::Word(&["decide", "log", "off"]),
            Is("decide"),
            "`log` names a match without judging by it; `off` does not look for it.",
        ),
        key(
            "content",
            Kind::Word(&["page", "data", "any"]),
            Is("any"),
            "Which bodies: HTML pages; JSON, XML and plain text; or both.",
        ),
        key(
            "shape",
            Kind::Word(&["any", "interstitial"]),
            Is("any"),
            "`interstitial`: only pages with little visible text, as walls have.",
        ),
        key(
            "max_text",
            Kind::Count(0, 1_000_000),
            Absent("the shape alone decides"),
            "Most characters of visible text.",
        ),
        key("status", Kind::OneOrMany(&Kind::Status), Is("[]"), "Any of these statuses."),
        key(
            "header",
            Kind::Map("a header's name", &Kind::Text(LONGEST_PATTERN)),
            Is("{}"),
            "All of these headers; `*` in a value stands for any run of characters.",
        ),
        key("location", Kind::Section(&LOCATION), Absent("any or none"), "Where a redirect leads."),
        key(
            "title",
            Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)),
            Is("[]"),
            "Any of these titles, `*` for any run of characters.",
        ),
        key(
            "body",
            Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)),
            Is("[]"),
            "All of these texts in the decoded prefix of the body.",
        ),
        key(
            "any",
            Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)),
            Is("[]"),
            "At least one of these texts there.",
        ),
        key(
            "text",
            Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)),
            Is("[]"),
            "At least one of these texts in what a person sees.",
        ),
        key(
            "within",
            Kind::Count(1, 1_000_000),
            Absent("anywhere"),
            "A match of `text` ends within so many visible characters.",
        ),
        key(
            "expect",
            Kind::List(&Kind::Section(&EXPECT)),
            Is("[]"),
            "Examples that `tidegate check` tries.",
        ),
    ],
};

/// `detect[].location`.
pub(in crate::config) static LOCATION: Section = Section {
    name: "location",
    doc: "Where a redirect leads; `*` for any run of characters.",
    keys: &[
        key("host", Kind::Text(LONGEST_PATTERN), Absent("any"), "The host."),
        key("path", Kind::Text(LONGEST_PATTERN), Absent("any"), "The path, without the query."),
        key("query", Kind::Text(LONGEST_PATTERN), Absent("any"), "The name of a query parameter."),
    ],
};

/// An entry of `detect[].expect`.
pub(in crate::config) static EXPECT: Section = Section {
    name: "expect",
    doc: "An example answer, and whether the signature must match it.",
    keys: &[
        key("matches", Kind::Flag, Is("true"), "Whether the signature must match."),
        key("url", Kind::Text(LONGEST_PATTERN), Absent("some page"), "What was asked for."),
        key("status", Kind::Count(100, 599), Is("200"), "Its status."),
        key(
            "header",
            Kind::Map("a header's name", &Kind::Text(LONGEST_PATTERN)),
            Is("{}"),
            "Its headers; `content-type: text/html` where none is given.",
        ),
        key(
            "body",
            Kind::Text(65536),
            Is("\"\""),
            "Its body; `{prose}` stands for a long harmless text, `{filler}` for markup without \
             text.",
        ),
    ],
};

/// `detect` of the whole file.
pub(in crate::config) static DETECT_ALL: Section = Section {
    name: "detect (of the file)",
    doc: "How pages are judged beside signatures.",
    keys: &[key(
        "same_page",
        Kind::Word(&["on", "off"]),
        Is("on"),
        "Whether a site blocks that answers different URLs with one short page that looks like a wall.",
    )],
};
