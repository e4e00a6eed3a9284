//! A secret text: a password, a token, or a URL that may contain one.

use std::fmt;

use subtle::ConstantTimeEq;

/// A text whose `Debug` output hides it. Every use calls [`Secret::expose`], so that all uses can
/// be found.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Never write it to a log, a response or a metric.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `given` is the secret. The time taken reveals only its length.
    #[must_use]
    pub fn matches(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some(***)");
    }

    #[test]
    fn a_secret_matches_only_itself() {
        let secret = Secret::new("hunter2");
        assert!(secret.matches(b"hunter2"));
        assert!(!secret.matches(b"hunter"));
        assert!(!secret.matches(b"hunter3"));
    }
}
