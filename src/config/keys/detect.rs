//! The keys of signatures.

use super::{
    Default::{Absent, Is, Required},
    Kind, Section, key,
};

/// Longest pattern, in bytes: as long as a line of a page that is worth looking for.
pub(in crate::config) const LONGEST_PATTERN: usize = 512;

/// Verdicts of a response.
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
    doc: "A signature describes a response. All given conditions must hold; at least one is \
          needed. Case does not matter.",
    keys: &[
        key("name", Kind::Name, Required, "Its name, which the evidence shows."),
        key(
            "verdict",
            ANSWERS,
            Required,
            "The verdict of a matching response. `ok` overrules built-in signatures.",
        ),
        key(
            "vendor",
            Kind::Text(LONGEST_PATTERN),
            Absent("no vendor"),
            "The vendor of the wall, which the evidence shows.",
        ),
        key("confidence", Kind::Word(&["high", "low"]), Is("high"), "The confidence of a match."),
        key(
            "action",
            Kind::Word(&["decide", "log", "off"]),
            Is("decide"),
            "`log` reports a match without a verdict. `off` disables the signature.",
        ),
        key(
            "content",
            Kind::Word(&["page", "data", "any"]),
            Is("any"),
            "Bodies to search: HTML pages; JSON, XML and plain text; or both.",
        ),
        key(
            "shape",
            Kind::Word(&["any", "interstitial"]),
            Is("any"),
            "`interstitial` matches only pages with little visible text, like walls.",
        ),
        key(
            "max_text",
            Kind::Count(0, 1_000_000),
            Absent("`shape` decides"),
            "The most characters of visible text.",
        ),
        key("status", Kind::OneOrMany(&Kind::Status), Is("[]"), "One of these statuses."),
        key(
            "header",
            Kind::Map("a header's name", &Kind::Text(LONGEST_PATTERN)),
            Is("{}"),
            "All of these headers. `*` in a value is any run of characters.",
        ),
        key("location", Kind::Section(&LOCATION), Absent("any or none"), "Where a redirect leads."),
        key(
            "title",
            Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)),
            Is("[]"),
            "One of these titles. `*` is any run of characters.",
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
            "At least one of these texts in the decoded prefix of the body.",
        ),
        key(
            "text",
            Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)),
            Is("[]"),
            "At least one of these texts in the visible text.",
        ),
        key(
            "within",
            Kind::Count(1, 1_000_000),
            Absent("anywhere"),
            "A match of `text` must end within that many visible characters.",
        ),
        key(
            "expect",
            Kind::List(&Kind::Section(&EXPECT)),
            Is("[]"),
            "Examples that `tidegate check` tests.",
        ),
    ],
};

/// `detect[].location`.
pub(in crate::config) static LOCATION: Section = Section {
    name: "location",
    doc: "Where a redirect leads. `*` is any run of characters.",
    keys: &[
        key("host", Kind::Text(LONGEST_PATTERN), Absent("any"), "The host."),
        key("path", Kind::Text(LONGEST_PATTERN), Absent("any"), "The path, without the query."),
        key("query", Kind::Text(LONGEST_PATTERN), Absent("any"), "The name of a query parameter."),
    ],
};

/// An entry of `detect[].expect`.
pub(in crate::config) static EXPECT: Section = Section {
    name: "expect",
    doc: "An example response, and whether the signature must match it.",
    keys: &[
        key("matches", Kind::Flag, Is("true"), "Whether the signature must match."),
        key("url", Kind::Text(LONGEST_PATTERN), Absent("some page"), "The URL of the request."),
        key("status", Kind::Count(100, 599), Is("200"), "Its status."),
        key(
            "header",
            Kind::Map("a header's name", &Kind::Text(LONGEST_PATTERN)),
            Is("{}"),
            "Its headers. The default is `content-type: text/html`.",
        ),
        key(
            "body",
            Kind::Text(65536),
            Is("\"\""),
            "Its body. `{prose}` stands for a long harmless text, `{filler}` for markup without \
             text.",
        ),
    ],
};

/// `detect` of the whole file.
pub(in crate::config) static DETECT_ALL: Section = Section {
    name: "detect (of the file)",
    doc: "How pages are judged in addition to signatures.",
    keys: &[key(
        "same_page",
        Kind::Word(&["on", "off"]),
        Is("on"),
        "Whether a site that answers different URLs with the same short, wall-like page counts as \
         blocking.",
    )],
};
