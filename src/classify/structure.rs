//! How a page is built: what tells a page that stands in the way from a page of the site.

use memchr::{memchr, memchr_iter, memmem};

use super::tag::{Tag, whole_content};

/// Links from which on a page is one of the site: a wall leads nowhere. Counted in the bytes of the
/// part that is looked at, wherever they stand.
const MANY_LINKS: usize = 12;

/// Bytes of a tag's attributes that are looked at.
const MAX_ATTRIBUTES: usize = 1024;

/// What the page that a wall sends its visitors to is named after.
const CHECKS: &[&str] = &["captcha", "challenge", "antibot", "anti-bot", "botcheck", "human-check"];

/// What a page is made of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Structure {
    /// At most [`MANY_LINKS`].
    pub(super) links: usize,
    /// Fields that a visitor fills in, captchas' own aside.
    pub(super) fields: usize,
    /// There is a field for a password.
    pub(super) password: bool,
    /// Parts that pages of sites have: navigation, articles, tables.
    pub(super) sections: usize,
    /// There is a table.
    table: bool,
    /// It describes itself to search engines and those who share it.
    pub(super) described: bool,
    pub(super) forms: usize,
    /// Search engines shall leave it out.
    pub(super) noindex: bool,
    /// It moves on by itself, to itself or to another page.
    pub(super) refresh: bool,
    /// It moves on to a page that is named after a check.
    pub(super) refresh_to_check: bool,
    /// An element, a script or a form is named after a challenge.
    pub(super) challenge: bool,
    /// A form that passes a login on: made of tokens, but no wall.
    pub(super) single_sign_on: bool,
    /// Scripts, with or without a source.
    pub(super) scripts: usize,
    /// Where inline scripts begin and end.
    inline: Vec<(usize, usize)>,
}

/// How many links a page has, at most [`MANY_LINKS`].
fn links(page: &[u8]) -> usize {
    let is_link = |at: &usize| matches!(page.get(at + 1..at + 3), Some([b'a' | b'A', after]) if after.is_ascii_whitespace());
    memchr_iter(b'<', page).filter(is_link).take(MANY_LINKS).count()
}

/// Whether the page has links as pages of sites have.
pub(super) fn has_many_links(page: &[u8]) -> bool {
    links(page) >= MANY_LINKS
}

/// Whether the page may have a script; if not, whether it may have a `meta`. Most short pages have neither, and need no
/// look at their structure.
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
        let mut at = 0;
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
            // What a cut leaves open is nothing; nor is anything behind it.
            let Some(tag) = Tag::whole(&bytes[at..]) else { break };
            let attributes = &bytes[at + tag.name.len()..at + tag.len];
            at += tag.len;
            let name = tag.name.to_ascii_lowercase();
            structure.add(&name, attributes);
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

    /// The inline scripts of `page`, whose structure this is.
    pub(super) fn inline<'a>(&self, page: &'a str) -> impl Iterator<Item = &'a str> {
        self.inline.iter().filter_map(|(begin, end)| page.get(*begin..*end))
    }

    fn add(&mut self, name: &[u8], attributes: &[u8]) {
        match name {
            // One table alone puts things into their places.
            b"table" if !self.table => self.table = true,
            b"nav" | b"article" | b"aside" | b"table" => self.sections += 1,
            b"form" => self.forms += 1,
            b"link" => self.described |= plain(attributes).contains("rel=canonical"),
            b"textarea" | b"select" => self.add_field(&plain(attributes)),
            b"input" => self.add_input(&plain(attributes)),
            b"meta" => {
                let meta = plain(attributes);
                self.noindex |= meta.contains("robots") && meta.contains("noindex");
                self.refresh |= meta.contains("http-equiv=refresh");
                self.refresh_to_check |= meta.contains("http-equiv=refresh")
                    && CHECKS.iter().any(|name| meta.contains(name));
                self.described |= ["property=og:", "name=description", "name=twitter:"]
                    .iter()
                    .any(|name| meta.contains(name));
            }
            b"script" => self.scripts += 1,
            _ => {}
        }
        if matches!(
            name,
            b"script"
                | b"form"
                | b"div"
                | b"iframe"
                | b"input"
                | b"button"
                | b"main"
                | b"body"
                | b"section"
        ) {
            let names = plain(attributes);
            self.challenge |= [
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
            ]
            .iter()
            .any(|word| names.contains(word));
        }
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
        let unseen = ["hidden", "submit", "button", "checkbox", "image", "radio", "reset"];
        if !unseen.into_iter().any(is) {
            self.add_field(attributes);
        }
    }

    fn add_field(&mut self, attributes: &str) {
        let is_hidden = attributes.contains("display:none") || attributes.contains("display: none");
        let is_captchas = attributes.contains("captcha") || attributes.contains("answer");
        self.fields += usize::from(!is_hidden && !is_captchas);
    }
}

/// Attributes in small letters and without quotes.
fn plain(attributes: &[u8]) -> String {
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
    fn what_a_visitor_fills_in_is_told_from_what_a_wall_asks_for() {
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
