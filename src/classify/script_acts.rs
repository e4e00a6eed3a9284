//! The actions of a page's inline scripts, as far as their words show them.

/// Words of code that computes an answer.
const COMPUTES: &[&str] = &[
    "charcodeat",
    "charat(",
    ".reverse()",
    "unescape(",
    ".tostring(16)",
    ".tostring(36)",
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
    "decrypt(",
    "math.pow",
];

/// Words of code that loads another page, or the same one again.
const RETURNS: &[&str] = &[
    "location.reload",
    "location.href",
    "location.replace",
    "location=",
    "location =",
    ".submit()",
];

/// Words of code that turns text into other code.
const UNPACKS: &[&str] = &["fromcharcode", "unescape(", "atob(", "function(p,a,c,k"];

/// The actions of inline scripts.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScriptActs {
    /// They store something, in a cookie or a form.
    pub(super) keeps: bool,
    /// They leave the page or load it again.
    pub(super) returns: bool,
    pub(super) computes: bool,
    /// They run code that they have unpacked.
    pub(super) unpacks: bool,
    pub(super) has_cookie: bool,
    pub(super) has_location: bool,
    /// They load the same page again.
    pub(super) reloads: bool,
    /// They mention a login.
    pub(super) names_login: bool,
}

impl ScriptActs {
    pub(super) fn of<'a>(scripts: impl Iterator<Item = &'a str>) -> Self {
        let script = scripts.collect::<String>().to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| script.contains(word));
        Self {
            keeps: has(&[".cookie=", ".cookie =", "document.cookie", ".submit()"]),
            returns: has(RETURNS),
            computes: has(COMPUTES),
            unpacks: has(&["eval(", "=eval"]) && has(UNPACKS),
            has_cookie: has(&["cookie"]),
            has_location: has(&["location"]),
            reloads: has(&["location.reload"]),
            names_login: has(&["login", "log-in", "signin", "sign-in"]),
        }
    }
}
