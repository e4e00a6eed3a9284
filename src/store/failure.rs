//! Why a call to Redis failed: one kind from a closed set, for operators and metrics, and the
//! message of the server or the client.

use std::time::Duration;

use fred::prelude::{Error as RedisError, ErrorKind};

use super::scripts::BadReply;

words! {
    /// The kind of failure; the values of `kind` in `tidegate_store_errors_total`.
    pub enum FailureKind {
        /// No connection: an unknown name, no listener, a broken connection.
        Unreachable = "unreachable",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The password or the user is wrong, or one is missing.
        Auth = "auth",
        /// The user may not run a command or use a key.
        Permission = "noperm",
        /// No reply in time.
        Timeout = "timeout",
        /// Too many calls are waiting.
        QueueFull = "queue_full",
        /// The server does not speak Redis.
        Protocol = "protocol",
        /// A script returned an invalid reply.
        Reply = "reply",
        /// The server's memory is full.
        OutOfMemory = "oom",
        /// The server is a replica.
        ReadOnly = "readonly",
        /// The server still loads its data.
        Loading = "loading",
        /// The server cannot save and therefore refuses writes.
        Misconfigured = "misconf",
        /// The server is busy with another script that does not end.
        Busy = "busy",
        /// Another program uses one of our keys.
        WrongType = "wrongtype",
        /// The cluster lacks a part of its slots.
        ClusterDown = "clusterdown",
        /// The slot lives on another node.
        Moved = "moved",
        /// The keys of one call are in several slots.
        CrossSlot = "crossslot",
        /// Any other error of a script.
        Script = "script",
        /// Members with another schema are running.
        Schema = "schema",
    }
}

impl FailureKind {
    /// The cause that an operator acts on: one of four, each with its own remedy.
    #[must_use]
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout | Self::QueueFull => "timed_out",
            Self::Tls | Self::Protocol | Self::Reply => "invalid_reply",
            Self::Auth
            | Self::Permission
            | Self::OutOfMemory
            | Self::ReadOnly
            | Self::Loading
            | Self::Misconfigured
            | Self::Busy
            | Self::WrongType
            | Self::ClusterDown
            | Self::Moved
            | Self::CrossSlot
            | Self::Script
            | Self::Schema => "refused",
        }
    }

    /// What to check first, as a sentence.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Unreachable => "check the address in `store.url`, and whether Redis runs there",
            Self::Tls => {
                "check whether the server speaks TLS (`rediss://`), its certificate and `store.ca`"
            }
            Self::Auth => "check the user and the password in `store.url`",
            Self::Permission => {
                "check the permissions of the user (`ACL GETUSER`); docs/operations.md lists them"
            }
            Self::Timeout => "check the network and the load of Redis, or raise `store.timeout`",
            Self::QueueFull => "Redis does not keep up; check its load",
            Self::Protocol => "check whether the server at `store.url` is Redis, and speaks TLS",
            Self::OutOfMemory => "raise `maxmemory` of Redis",
            Self::ReadOnly => "`store.url` names a replica; name the primary, or a Sentinel",
            Self::Loading => "Redis is starting; it answers once its data is loaded",
            Self::Misconfigured => "Redis cannot save to its disk; free or repair it",
            Self::Busy => "end the script that blocks Redis (`SCRIPT KILL`)",
            Self::WrongType => "another program uses our keys; choose another `store.prefix`",
            Self::ClusterDown => "repair the cluster (`CLUSTER INFO`)",
            Self::Moved | Self::CrossSlot => "write `redis-cluster://` in `store.url`",
            Self::Schema => "stop the members of the other version; this one starts to send then",
            Self::Reply | Self::Script => "check that Redis is 6.2 or newer, or Valkey",
        }
    }

    /// The kind of an error reply, by its first word.
    fn of_reply(text: &str, kind: &ErrorKind) -> Option<Self> {
        Some(match text.split([' ', ':']).next().unwrap_or_default() {
            "OOM" => Self::OutOfMemory,
            "READONLY" => Self::ReadOnly,
            "LOADING" => Self::Loading,
            "MISCONF" => Self::Misconfigured,
            "BUSY" => Self::Busy,
            "NOPERM" => Self::Permission,
            "WRONGTYPE" => Self::WrongType,
            "CLUSTERDOWN" => Self::ClusterDown,
            "MOVED" | "ASK" | "TRYAGAIN" => Self::Moved,
            "CROSSSLOT" => Self::CrossSlot,
            "NOAUTH" | "WRONGPASS" => Self::Auth,
            "ERR" if text.contains("WRONGTYPE") => Self::WrongType,
            "ERR" if text.contains("AUTH") => Self::Auth,
            // A script runs a command that its user may not run.
            "ERR" if text.contains("permission") || text.contains("can't run this command") => {
                Self::Permission
            }
            "ERR" => Self::Script,
            // A redirection. It is not followed; the next call goes to its target.
            "Too" if *kind == ErrorKind::Routing => Self::Moved,
            _ => return None,
        })
    }

    /// The kind of an error of the client or of the system.
    fn of_client(text: &str, kind: &ErrorKind) -> Self {
        // Errors of rustls arrive as connection errors.
        const TLS: [&str; 5] =
            ["certificate", "Certificate", "corrupt message", "handshake", "TLS"];
        match kind {
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Auth => Self::Auth,
            ErrorKind::Backpressure => Self::QueueFull,
            ErrorKind::Tls => Self::Tls,
            _ if TLS.iter().any(|word| text.contains(word)) => Self::Tls,
            ErrorKind::Protocol | ErrorKind::Parse => Self::Protocol,
            _ => Self::Unreachable,
        }
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// The message of the server or the client. It never contains a password.
    pub(super) text: String,
    /// Whether the server sent an error reply.
    pub(super) answered: bool,
    /// Whether no reply came at all.
    silent: bool,
}

impl Failure {
    pub(super) fn timeout(script: &str, after: Duration) -> Self {
        let text = format!("no answer to `{script}` within {after:?}");
        Self { kind: FailureKind::Timeout, text, answered: false, silent: true }
    }

    /// An error of a script.
    pub(super) fn script(text: String) -> Self {
        Self { kind: FailureKind::Script, text, answered: true, silent: false }
    }

    /// Members with another schema use the store.
    pub(super) fn schema(other: &str, members: u32) -> Self {
        let text = format!("{members} members of a version with schema {other} use this store");
        Self { kind: FailureKind::Schema, text, answered: true, silent: false }
    }

    /// The server has not accepted a subscription.
    pub(super) fn not_subscribed() -> Self {
        let text = "the subscription is refused: may the user SUBSCRIBE to the channel?".to_owned();
        Self { kind: FailureKind::Permission, text, answered: true, silent: false }
    }

    /// Whether no reply came at all.
    pub(super) fn is_silence(&self) -> bool {
        self.silent
    }

    /// Whether a Cluster client is still connecting and does not know the nodes yet.
    pub(super) fn is_connecting(&self) -> bool {
        self.text.starts_with("Missing cluster routing state")
    }

    /// A connection that could not be opened. The server has replied to no call, whatever it sent.
    pub(super) fn connecting(error: RedisError) -> Self {
        Self { answered: false, ..Self::from(error) }
    }

    /// A server that accepts a connection but does not respond to its TLS handshake.
    pub(super) fn no_handshake() -> Self {
        let text = "the server accepts connections, but answers no TLS handshake".to_owned();
        Self { kind: FailureKind::Tls, text, answered: false, silent: false }
    }

    /// The same failure with the connection's own cause, if that is known.
    pub(super) fn because(self, cause: Option<Self>) -> Self {
        match cause {
            Some(cause) if !self.answered => Self { silent: self.silent, ..cause },
            _ => self,
        }
    }
}

/// The message within the client's text for a system error, which is Rust's debug output: `Os {
/// code: 111, kind: ConnectionRefused, message: "Connection refused" }`.
fn plain(details: &str) -> &str {
    let quoted = || {
        let (_, rest) = details.split_once("message: \"").or(details.split_once("error: \""))?;
        rest.rsplit_once('"').map(|(sentence, _)| sentence)
    };
    quoted().unwrap_or(details)
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let text = plain(error.details()).to_owned();
        let reply = FailureKind::of_reply(&text, error.kind());
        let kind = reply.unwrap_or_else(|| FailureKind::of_client(&text, error.kind()));
        let silent = kind == FailureKind::Timeout;
        Self { kind, text, answered: reply.is_some(), silent }
    }
}

impl From<BadReply> for Failure {
    fn from(error: BadReply) -> Self {
        Self { kind: FailureKind::Reply, text: error.to_string(), answered: true, silent: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_read_as_sentences_and_have_their_kind() {
        for (kind, details, expected, text) in [
            (
                ErrorKind::IO,
                "Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" }",
                FailureKind::Unreachable,
                "Connection refused",
            ),
            (
                ErrorKind::IO,
                "Custom { kind: InvalidData, error: \"invalid peer certificate: Expired\" }",
                FailureKind::Tls,
                "invalid peer certificate: Expired",
            ),
            (ErrorKind::Auth, "WRONGPASS no", FailureKind::Auth, "WRONGPASS no"),
            (ErrorKind::Unknown, "NOPERM no", FailureKind::Permission, "NOPERM no"),
            (ErrorKind::Protocol, "bad prefix", FailureKind::Protocol, "bad prefix"),
        ] {
            let failure = Failure::from(RedisError::new(kind, details.to_owned()));
            assert_eq!((failure.kind, failure.text.as_str()), (expected, text));
        }
    }
    #[test]
    fn a_call_before_the_cluster_nodes_are_known_is_not_a_cluster_failure() {
        // The text of `fred`, which has no error kind for this case.
        let error = RedisError::new(ErrorKind::Cluster, "Missing cluster routing state.");
        assert!(Failure::from(error).is_connecting());
        let error = RedisError::new(ErrorKind::Cluster, "CLUSTERDOWN The cluster is down");
        assert!(!Failure::from(error).is_connecting());
    }
}
