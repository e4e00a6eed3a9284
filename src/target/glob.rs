//! Globs over hosts, paths and header values: `*` matches any run of characters.

/// Whether `text` matches `glob`, in which `*` stands for any run of characters. Linear in both.
#[must_use]
pub fn glob_matches(glob: &str, text: &str) -> bool {
    // Most globs fail at their first character.
    match glob.as_bytes().first() {
        Some(first) if *first != b'*' && text.as_bytes().first() != Some(first) => return false,
        _ => {}
    }
    let mut parts = glob.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_the_whole_text() {
        assert!(glob_matches("/search*", "/search?q=1"));
        assert!(glob_matches("*", ""));
        assert!(glob_matches("/a*/b*c", "/axx/b/bc"));
        assert!(!glob_matches("/a*/b", "/axx/bc"));
        assert!(!glob_matches("/search", "/search2"));
        assert!(!glob_matches("/ab*ba", "/aba"));
    }
}
