//! The normal form of a path, which is the same for all spellings that a site treats alike.

use std::borrow::Cow;

/// Normalises path and query for the comparison with rules (RFC 3986 section 6.2.2): unnecessary
/// escapes are decoded, others get upper-case digits, and dot segments are resolved. Consecutive
/// slashes count as one, as on most sites. The query is only decoded. `%2F` stays, because sites
/// disagree on whether it separates segments. A text that is not a path (`*`, the empty path of a
/// CONNECT) stays unchanged.
#[must_use]
pub fn normalise(text: &str) -> Cow<'_, str> {
    if !text.starts_with('/') || is_normal(text) {
        return Cow::Borrowed(text);
    }
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    let decoded = decode(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_in_slash = false;
    for segment in decoded.split('/') {
        ends_in_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            name => segments.push(name),
        }
    }
    let mut normal = String::with_capacity(text.len());
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if ends_in_slash || segments.is_empty() {
        normal.push('/');
    }
    if let Some(query) = query {
        normal.push('?');
        normal.push_str(&decode(query));
    }
    Cow::Owned(normal)
}

/// Whether the path is certainly in its normal form.
fn is_normal(text: &str) -> bool {
    let bytes = text.as_bytes();
    !bytes.contains(&b'%') && !bytes.windows(2).any(|two| two == b"//" || two == b"/.")
}

/// Decodes the unreserved characters of RFC 3986 section 2.3, and writes other escapes in upper
/// case. A `%` that is not part of an escape becomes `%25`, so that it cannot form one with the
/// decoded text after it.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let digits = after.get(..2).filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.map(|two| (two, u8::from_str_radix(two, 16))) {
            Some((two, Ok(byte))) => {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                    decoded.push(char::from(byte));
                } else {
                    decoded.push('%');
                    decoded.push_str(&two.to_ascii_uppercase());
                }
                rest = &after[2..];
            }
            Some((_, Err(_))) | None => {
                decoded.push_str("%25");
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_are_one() {
        for spelling in [
            "/admin",
            "/%61dmin",
            "/%61%64%6D%69%6e",
            "//admin",
            "/./admin",
            "/a/../admin",
            "/%2e/admin",
            "/%2E%2e/admin",
            "/../../admin",
            "///a//..//.//admin",
            "/a/%2e%2E/admin",
        ] {
            assert_eq!(normalise(spelling), "/admin", "{spelling}");
        }
    }

    #[test]
    fn different_paths_stay_different() {
        for (path, normal) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/", "/a/"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%252fb", "/a%252fb"),
            ("/%", "/%25"),
            ("/%zz%4", "/%25zz%254"),
            ("/%6%61", "/%256a"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/a?x=//%2e%2F/../b", "/a?x=//.%2F/../b"),
            ("/\u{e4}%c3%a4", "/\u{e4}%C3%A4"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(normalise(path), normal, "{path}");
            assert_eq!(normalise(normal), normal, "{path}: its normal form is its own");
        }
    }
}
