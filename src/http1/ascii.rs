//! Classes of bytes: one table, looked up on the hot path.

const TOKEN: u8 = 1;
const AUTHORITY: u8 = 2;
const PATH: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut b = 0;
    while b < 128 {
        let c = b as u8;
        let letter = c.is_ascii_alphanumeric();
        if letter || contains(b"!#$%&'*+-.^_`|~", c) {
            table[b] |= TOKEN;
        }
        if letter || contains(b"-._", c) {
            table[b] |= AUTHORITY;
        }
        if letter || contains(b"/.-_~%!$&'()*+,;=?:", c) {
            table[b] |= PATH;
        }
        b += 1;
    }
    table
};

const fn contains(set: &[u8], b: u8) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == b {
            return true;
        }
        at += 1;
    }
    false
}

const fn is(b: u8, class: u8) -> bool {
    CLASSES[b as usize] & class != 0
}

/// A character of a method or field name (RFC 9110 section 5.6.2).
pub(super) const fn is_token(b: u8) -> bool {
    is(b, TOKEN)
}

/// A character of an ordinary host name.
pub(super) const fn is_name(b: u8) -> bool {
    is(b, AUTHORITY)
}

/// A character of an ordinary path and query.
pub(super) const fn is_path(b: u8) -> bool {
    is(b, PATH)
}

/// Whether each word of a field name begins with a capital letter, and no other letter is one.
pub(super) fn is_in_title_case(name: &[u8]) -> bool {
    let mut begins = true;
    name.iter().all(|b| {
        let other = if begins { b.is_ascii_lowercase() } else { b.is_ascii_uppercase() };
        begins = *b == b'-';
        !other
    })
}

/// A control character other than a tab. Without a branch, the compiler checks 16 bytes at a time.
pub(super) fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |bad, &b| bad | ((b < b' ') & (b != b'\t')) | (b == 0x7f))
}

/// Whether all characters of a Host field are allowed in `host` or `host:port`. The target decides
/// the site, but an invalid Host field is a sign of an attack.
pub(super) fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|b| *b == b']').unwrap_or(0);
            let (address, port) = rest.split_at(end);
            let plain = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
            (!address.is_empty() && address.iter().all(plain), port.get(1..).unwrap_or(b""))
        }
        _ => {
            let end = value.iter().position(|b| !is_name(*b)).unwrap_or(value.len());
            (end > 0, &value[end..])
        }
    };
    host && match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Whether a target has the usual form `http://name:port/path`, which every parser reads alike.
pub(super) fn is_usual_target(target: &[u8]) -> bool {
    let Some(rest) = target.strip_prefix(b"http://") else { return false };
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    !path.is_empty()
        && authority.first() != Some(&b'[')
        && is_host(authority)
        && path.iter().all(|b| is_path(*b))
}
