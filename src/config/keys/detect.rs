//! The keys of signatures.

use super::{
    Default::{Absent, Is, Required},
    Kind, Section,
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

section! {
    /// A signature describes a response. All given conditions must hold; at least one is needed.
    /// Case does not matter.
    DETECT = "detect" {
        /// Its name, which the evidence shows.
        name: Kind::Name, Required;
        /// The verdict of a matching response. `ok` overrules built-in signatures.
        verdict: ANSWERS, Required;
        /// The vendor of the wall, which the evidence shows.
        vendor: Kind::Text(LONGEST_PATTERN), Absent("no vendor");
        /// The confidence of a match.
        confidence: Kind::Word(&["high", "low"]), Is("high");
        /// `log` reports a match without a verdict. `off` disables the signature.
        action: Kind::Word(&["decide", "log", "off"]), Is("decide");
        /// Bodies to search: HTML pages; JSON, XML and plain text; or both.
        content: Kind::Word(&["page", "data", "any"]), Is("any");
        /// `interstitial` matches only pages with little visible text, like walls.
        shape: Kind::Word(&["any", "interstitial"]), Is("any");
        /// The most characters of visible text.
        max_text: Kind::Count(0, 1_000_000), Absent("`shape` decides");
        /// One of these statuses.
        status: Kind::OneOrMany(&Kind::Status), Is("[]");
        /// All of these headers. `*` in a value is any run of characters.
        header: Kind::Map("a header's name", &Kind::Text(LONGEST_PATTERN)), Is("{}");
        /// Where a redirect leads.
        location: Kind::Section(&LOCATION), Absent("any or none");
        /// One of these titles. `*` is any run of characters.
        title: Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)), Is("[]");
        /// All of these texts in the decoded prefix of the body.
        body: Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)), Is("[]");
        /// At least one of these texts in the decoded prefix of the body.
        any: Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)), Is("[]");
        /// At least one of these texts in the visible text.
        text: Kind::OneOrMany(&Kind::Text(LONGEST_PATTERN)), Is("[]");
        /// A match of `text` must end within that many visible characters.
        within: Kind::Count(1, 1_000_000), Absent("anywhere");
        /// Examples that `tidegate check` tests.
        expect: Kind::List(&Kind::Section(&EXPECT)), Is("[]");
    }
}

section! {
    /// Where a redirect leads. `*` is any run of characters.
    LOCATION = "location" {
        /// The host.
        host: Kind::Text(LONGEST_PATTERN), Absent("any");
        /// The path, without the query.
        path: Kind::Text(LONGEST_PATTERN), Absent("any");
        /// The name of a query parameter.
        query: Kind::Text(LONGEST_PATTERN), Absent("any");
    }
}

section! {
    /// An example response, and whether the signature must match it.
    EXPECT = "expect" {
        /// Whether the signature must match.
        matches: Kind::Flag, Is("true");
        /// The URL of the request.
        url: Kind::Text(LONGEST_PATTERN), Absent("some page");
        /// Its status.
        status: Kind::Count(100, 599), Is("200");
        /// Its headers. The default is `content-type: text/html`.
        header: Kind::Map("a header's name", &Kind::Text(LONGEST_PATTERN)), Is("{}");
        /// Its body. `{prose}` stands for a long harmless text, `{filler}` for markup without text.
        body: Kind::Text(65536), Is("\"\"");
    }
}

section! {
    /// How pages are judged in addition to signatures.
    DETECT_ALL = "detect (of the file)" {
        /// Whether a site that answers different URLs with the same short, wall-like page counts as
        /// blocking.
        same_page: Kind::Word(&["on", "off"]), Is("on");
    }
}
