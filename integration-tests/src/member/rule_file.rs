//! A rule file for one member. Addresses and folders are filled in when it starts.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::redis::Redis;

/// The test's part of a rule file. The rest is what all tests need (loopback sites, free ports, a
/// private folder).
#[derive(Debug, Clone)]
pub struct RuleFile {
    rules: String,
    store: String,
    egress: String,
    extra: String,
    token: Option<String>,
    roots: Option<PathBuf>,
}

impl RuleFile {
    /// With these entries of `rules:` (a YAML list, from the first column on).
    #[must_use]
    pub fn new(rules: &str) -> Self {
        Self {
            rules: rules.trim_matches('\n').to_owned(),
            store: "memory".to_owned(),
            egress: "{allow: [loopback]}".to_owned(),
            extra: String::new(),
            token: None,
            roots: None,
        }
    }

    /// One rule for everything, with these keys in flow form (`rate: 3/s, burst: 5`).
    #[must_use]
    pub fn one_rule(keys: &str) -> Self {
        Self::new(&format!("- {{name: default, match: \"*\", {keys}}}"))
    }

    /// With this Redis. The timeout is longer than the default, because the machine is busy and few
    /// tests are about timeouts.
    #[must_use]
    pub fn redis(self, redis: &Redis) -> Self {
        self.store(&format!("{{url: \"{}\", timeout: 2s}}", redis.url()))
    }

    /// With this value of `store:`.
    #[must_use]
    pub fn store(self, store: &str) -> Self {
        Self { store: store.to_owned(), ..self }
    }

    /// With this value of `egress:`.
    #[must_use]
    pub fn egress(self, egress: &str) -> Self {
        Self { egress: egress.to_owned(), ..self }
    }

    /// With this token of the admin port.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// With these certificates (PEM) as the system's roots (`SSL_CERT_FILE`).
    #[must_use]
    pub fn roots(self, file: &Path) -> Self {
        Self { roots: Some(file.to_owned()), ..self }
    }

    /// The roots, if they are not the machine's.
    pub(super) fn roots_file(&self) -> Option<&Path> {
        self.roots.as_deref()
    }

    /// With another top-level line (or several).
    #[must_use]
    pub fn with(mut self, line: &str) -> Self {
        self.extra.push_str(line);
        self.extra.push('\n');
        self
    }

    /// The file's text for a member at these addresses.
    #[must_use]
    pub fn render(&self, proxy: SocketAddr, admin: SocketAddr, folder: &Path) -> String {
        let admin = match &self.token {
            Some(token) => format!("{{listen: \"{admin}\", token: \"{token}\"}}"),
            None => admin.to_string(),
        };
        let mut text = format!("listen: {proxy}\nadmin: {admin}\nstore: {}\n", self.store);
        text.push_str(&format!("egress: {}\nca_dir: {}/ca\n", self.egress, folder.display()));
        text.push_str(&self.extra);
        text.push_str("rules:\n");
        for line in self.rules.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }
}
