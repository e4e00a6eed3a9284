//! Counts the links, forms, fields and scripts of a page. Walls have few of them, ordinary pages have more.

use memchr::{memchr, memchr_iter, memmem};

use super::tag::{Tag, whole_content};

/// A page with at least this many links is an ordinary page, because a wall links to nothing. Links are counted in the
/// raw bytes, including comments and scripts.
const MANY_LINKS: usize = 12;

/// Bytes of a tag's attributes that are read.
const MAX_ATTRIBUTES: usize = 1024;

/// Tables that do not count as content.
const MAX_LAYOUT_TABLES: usize = 2;

/// Headings below the first level that a wall may have. Pages with more of them are divided for readers.
const MAX_SUBHEADINGS: usize = 3;

/// Words in the addresses to which walls redirect their visitors.
const CHECKS: &[&str] = &["captcha", "challenge", "antibot", "anti-bot", "botcheck", "human-check"];

/// Elements whose attributes are searched for names of challenges.
const NAMED: &[&[u8]] =
    &[b"script", b"form", b"div", b"iframe", b"input", b"button", b"main", b"body", b"section"];

/// Elements with which a visitor can pass a check, beside scripts.
const OFFERS: &[&[u8]] = &[b"form", b"iframe", b"button", b"input", b"canvas"];

/// Attributes of elements into which a client-side application is rendered.
const ROOTS: &[&str] = &["id=root", "id=app", "id=__next", "id=___gatsby", "id=__nuxt"];

/// Names that walls give to their elements.
const CHALLENGES: &[&str] = &[
    "captcha",
    "challenge",
    "turnstile",
    "antibot",
    "altcha",
    "cap-widget",
    "anti-bot",
    "botcheck",
    "bot-check",
    "botdetect",
    "bot-detect",
    "geetest",
    "arkose",
    "frc-",
    "antiddos",
    "anti-ddos",
    "proof-of-work",
    "browser-check",
    "human-check",
    "/verify",
    "hold-to",
    "press-hold",
    "data-pow",
    "data-difficulty",
];

/// Widgets that any site may put into its forms.
const WIDGETS: &[&str] =
    &["recaptcha", "hcaptcha", "turnstile", "friendlycaptcha", "challenge-platform"];

/// The structure of a page.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Structure {
    /// At most [`MANY_LINKS`].
    pub(super) links: usize,
    /// Fields that a visitor fills in. Fields of captchas and fields for visitors without scripts do not count. A field
    /// for an address or a date counts as two, because no wall asks for one.
    pub(super) fields: usize,
    /// Pictures.
    pub(super) images: usize,
    /// Has an element with which a visitor can pass, other than a script: a form, a button, a frame.
    pub(super) offers: bool,
    /// Has a password field.
    pub(super) password: bool,
    /// Elements of content pages: navigation, articles, asides, tables, many subheadings.
    pub(super) sections: usize,
    tables: usize,
    subheadings: usize,
    /// Offers a choice.
    pub(super) chooses: bool,
    /// Offers a choice before any element of a challenge.
    pub(super) chooses_first: bool,
    /// Has metadata for search engines or social networks.
    pub(super) described: bool,
    pub(super) forms: usize,
    /// Asks search engines not to index it.
    pub(super) noindex: bool,
    /// Has a `<meta http-equiv=refresh>`.
    pub(super) refresh: bool,
    /// The refresh leads to an address that names a check.
    pub(super) refresh_to_check: bool,
    /// The attributes of an element name a challenge.
    pub(super) challenge: bool,
    /// A script or a frame has an address that names a challenge, other than those of widgets for forms.
    pub(super) calls_challenge: bool,
    /// Scripts from other addresses.
    pub(super) other_sources: usize,
    /// Has an element into which an application is rendered.
    pub(super) has_root: bool,
    /// Has a form that forwards a login (SAML, OpenID). It contains only tokens, but is not a wall.
    pub(super) single_sign_on: bool,
    /// Scripts, with or without a source.
    pub(super) scripts: usize,
    /// Byte ranges of inline scripts.
    inline: Vec<(usize, usize)>,
}

/// Number of links of a page, at most [`MANY_LINKS`].
fn links(page: &[u8]) -> usize {
    let is_link = |at: &usize| matches!(page.get(at + 1..at + 3), Some([b'a' | b'A', after]) if after.is_ascii_whitespace());
    memchr_iter(b'<', page).filter(is_link).take(MANY_LINKS).count()
}

/// Whether the page has at least [`MANY_LINKS`] links.
pub(super) fn has_many_links(page: &[u8]) -> bool {
    links(page) >= MANY_LINKS
}

/// Whether the page may have a script and, if not, whether it may have a `meta`. Most short pages
/// have neither, and their structure need not be parsed.
pub(super) fn script_or_meta(page: &[u8]) -> (bool, bool) {
    let named = |at: usize, name: &[u8]| {
        page[at + 1..].get(..name.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(name))
    };
    let mut meta = false;
    for at in memchr_iter(b'<', page) {
        if named(at, b"script") {
            return (true, meta);
        }
        meta |= named(at, b"meta");
    }
    (false, meta)
}

impl Structure {
    /// The structure of `page`.
    pub(super) fn of(page: &str) -> Self {
        let bytes = page.as_bytes();
        let mut structure = Self { links: links(bytes), ..Self::default() };
        let (mut at, mut noscript_end) = (0, 0);
        while let Some(next) = memchr(b'<', &bytes[at..]) {
            at += next + 1;
            if bytes[at..].starts_with(b"!--") {
                let Some(end) = memmem::find(&bytes[at..], b"-->") else { break };
                at += end;
                continue;
            }
            if !bytes.get(at).is_some_and(u8::is_ascii_alphabetic) {
                continue;
            }
            // A tag without an end at the cut ends the page.
            let Some(tag) = Tag::whole(&bytes[at..]) else { break };
            let attributes = &bytes[at + tag.name.len()..at + tag.len];
            at += tag.len;
            let name = tag.name.to_ascii_lowercase();
            let fields = structure.fields;
            structure.add(&name, attributes);
            if at < noscript_end {
                structure.fields = fields;
            } else if name == b"noscript" {
                noscript_end = at + whole_content(&bytes[at..], &name).unwrap_or(0);
            }
            if matches!(&*name, b"script" | b"style") {
                let content = whole_content(&bytes[at..], &name).unwrap_or(bytes.len() - at);
                if name == b"script" {
                    structure.inline.push((at, at + content));
                }
                at += content;
            }
        }
        structure
    }

    /// Has elements of an ordinary page.
    pub(super) const fn has_content(&self) -> bool {
        self.fields > 0 || self.sections > 0 || self.described
    }

    /// Whether the page has an element with which a visitor can pass, be it only a script.
    pub(super) fn has_means(&self) -> bool {
        self.offers || self.scripts > 0
    }

    /// The inline scripts of `page`, which must be the page of this structure.
    pub(super) fn inline<'a>(&self, page: &'a str) -> impl Iterator<Item = &'a str> {
        self.inline.iter().filter_map(|(begin, end)| page.get(*begin..*end))
    }

    fn add(&mut self, name: &[u8], attributes: &[u8]) {
        match name {
            // Tables are often just layout, or list the details of a refusal.
            b"table" if self.tables < MAX_LAYOUT_TABLES => self.tables += 1,
            b"h2" | b"h3" | b"h4" if self.subheadings < MAX_SUBHEADINGS => self.subheadings += 1,
            b"nav" | b"article" | b"aside" | b"table" | b"h2" | b"h3" | b"h4" => self.sections += 1,
            b"form" => self.forms += 1,
            b"link" => self.described |= normalized(attributes).contains("rel=canonical"),
            b"textarea" | b"select" => self.add_field(&normalized(attributes)),
            b"input" => self.add_input(&normalized(attributes)),
            b"meta" => {
                let meta = normalized(attributes);
                self.noindex |= meta.contains("robots") && meta.contains("noindex");
                self.refresh |= meta.contains("http-equiv=refresh");
                self.refresh_to_check |= meta.contains("http-equiv=refresh")
                    && CHECKS.iter().any(|name| meta.contains(name));
                self.described |= ["property=og:", "name=description", "name=twitter:"]
                    .iter()
                    .any(|name| meta.contains(name));
            }
            b"script" => self.scripts += 1,
            b"img" => self.images += 1,
            _ => {}
        }
        let is_custom = name.contains(&b'-');
        self.offers |= is_custom || OFFERS.contains(&name);
        if is_custom {
            self.add_names(name, &String::from_utf8_lossy(name));
        }
        if NAMED.contains(&name) {
            self.add_names(name, &normalized(attributes));
        }
    }

    /// The names in the attributes of an element.
    fn add_names(&mut self, element: &[u8], names: &str) {
        let has = |words: &[&str]| words.iter().any(|word| names.contains(word));
        let is_script = element == b"script";
        let is_called = (is_script || element == b"iframe") && names.contains("src=");
        let names_check = has(CHECKS);
        self.has_root |= has(ROOTS);
        self.calls_challenge |= is_called && names_check && !has(WIDGETS);
        self.other_sources += usize::from(is_script && is_called && !names_check);
        self.challenge |= has(CHALLENGES);
    }

    fn add_input(&mut self, attributes: &str) {
        let is = |kind: &str| attributes.contains(&format!("type={kind}"));
        self.single_sign_on |= [
            "name=samlresponse",
            "name=samlrequest",
            "name=relaystate",
            "name=wresult",
            "name=id_token",
            "name=code ",
        ]
        .iter()
        .any(|name| attributes.contains(name));
        self.password |= is("password");
        self.chooses |= is("radio");
        self.chooses_first |= is("radio") && !self.challenge;
        let unseen = ["hidden", "submit", "button", "checkbox", "image", "radio", "reset"];
        if !unseen.into_iter().any(is) {
            self.add_field(attributes);
            self.fields += usize::from(["email", "tel", "date"].into_iter().any(is));
        }
    }

    fn add_field(&mut self, attributes: &str) {
        let is_hidden = attributes.contains("display:none") || attributes.contains("display: none");
        let is_captchas = attributes.contains("captcha") || attributes.contains("answer");
        self.fields += usize::from(!is_hidden && !is_captchas);
    }
}

/// The attributes in lower case and without quotes.
fn normalized(attributes: &[u8]) -> String {
    let attributes = &attributes[..attributes.len().min(MAX_ATTRIBUTES)];
    let text = String::from_utf8_lossy(attributes);
    text.chars().filter(|c| !matches!(c, '"' | '\'')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_counted_up_to_many() {
        assert_eq!(links(b"<a href=x><A\nhref=y><abbr ><a>"), 2);
        assert_eq!(links("<a href=x>".repeat(40).as_bytes()), MANY_LINKS);
    }

    #[test]
    fn a_tag_is_found_however_its_name_is_written() {
        assert!(script_or_meta(b"<p><ScRiPt src=x>").0);
        assert_eq!(script_or_meta(b"<p><META a><p>"), (false, true));
        assert_eq!(script_or_meta(b"script <p> < script <scr"), (false, false));
    }

    #[test]
    fn fields_for_visitors_are_distinguished_from_those_of_walls() {
        let page = "<meta content=\"noindex\" name='robots'><nav></nav><!-- <input> -->\
            <form><input type=\"hidden\" name=\"t\"><input name=user><input type=password>\
            <input name=\"captcha_answer\"><textarea name=g-recaptcha-response style=\"display: none\">\
            </form><script>if (a < b) '<input>'</script>";
        let structure = Structure::of(page);
        assert_eq!((structure.fields, structure.sections, structure.scripts), (2, 1, 1));
        assert!(structure.password && structure.noindex && !structure.refresh);
        assert_eq!(structure.inline(page).next(), Some("if (a < b) '<input>'</script>"));
    }
}
