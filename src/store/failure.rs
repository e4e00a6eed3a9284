//! Failed calls to the store: what kind of failure, and the one of four causes that an operator acts on.

use std::time::Duration;

use fred::prelude::{Error as RedisError, ErrorKind};

use super::scripts::BadReply;

/// Why a store cannot be used; each has its own cure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureCause {
    /// Nobody is there: no route, no listener, a connection that broke.
    Unreachable,
    /// It is there and refuses: a password, a permission, or a state in which it does not serve.
    Refused,
    /// It did not answer in time.
    TimedOut,
    /// It answered what no store answers: another protocol, TLS on one side only, a certificate that nobody trusts.
    InvalidReply,
}

impl FailureCause {
    /// The word in the log and in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::InvalidReply => "invalid_reply",
        }
    }
}

/// What kind of failure it was; the values of `kind` in `tidegate_store_errors_total` (`docs/metrics.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    OutOfMemory,
    ReadOnly,
    Loading,
    Misconfigured,
    Busy,
    NoPermission,
    Auth,
    WrongType,
    ClusterDown,
    Moved,
    CrossSlot,
    Script,
    Reply,
    Protocol,
    Tls,
    Timeout,
    QueueFull,
    Connection,
}

impl Kind {
    /// The label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfMemory => "oom",
            Self::ReadOnly => "readonly",
            Self::Loading => "loading",
            Self::Misconfigured => "misconf",
            Self::Busy => "busy",
            Self::NoPermission => "noperm",
            Self::Auth => "auth",
            Self::WrongType => "wrongtype",
            Self::ClusterDown => "clusterdown",
            Self::Moved => "moved",
            Self::CrossSlot => "crossslot",
            Self::Script => "script",
            Self::Reply => "reply",
            Self::Protocol => "protocol",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::QueueFull => "queue_full",
            Self::Connection => "connection",
        }
    }

    pub(super) const fn cause(self) -> FailureCause {
        match self {
            Self::OutOfMemory
            | Self::ReadOnly
            | Self::Loading
            | Self::Misconfigured
            | Self::Busy
            | Self::NoPermission
            | Self::Auth
            | Self::WrongType
            | Self::ClusterDown
            | Self::Moved
            | Self::CrossSlot
            | Self::Script => FailureCause::Refused,
            Self::Reply | Self::Protocol | Self::Tls => FailureCause::InvalidReply,
            Self::Timeout | Self::QueueFull => FailureCause::TimedOut,
            Self::Connection => FailureCause::Unreachable,
        }
    }

    /// The kind of an error reply, by its first word.
    fn of_reply(text: &str, kind: &ErrorKind) -> Option<Self> {
        let first = text.split([' ', ':']).next().unwrap_or_default();
        Some(match first {
            "OOM" => Self::OutOfMemory,
            "READONLY" => Self::ReadOnly,
            "LOADING" => Self::Loading,
            "MISCONF" => Self::Misconfigured,
            "BUSY" => Self::Busy,
            "NOPERM" => Self::NoPermission,
            "NOAUTH" | "WRONGPASS" => Self::Auth,
            "WRONGTYPE" => Self::WrongType,
            "CLUSTERDOWN" => Self::ClusterDown,
            "MOVED" | "ASK" | "TRYAGAIN" => Self::Moved,
            "CROSSSLOT" => Self::CrossSlot,
            "ERR" if text.contains("WRONGTYPE") => Self::WrongType,
            // A script that runs a command which its user may not.
            "ERR" if text.contains("permission") || text.contains("can't run this command") => {
                Self::NoPermission
            }
            "ERR" => Self::Script,
            // A redirection, which is not followed: the next call goes where it led.
            "Too" if *kind == ErrorKind::Routing => Self::Moved,
            _ => return None,
        })
    }
}

/// A failed call: what kind it was and what to tell a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct Failure {
    pub(super) kind: Kind,
    /// The server's or the client's words; never holds a password.
    pub(super) text: String,
    /// True if the server is there and answered, but not as it should.
    pub(super) answered: bool,
}

impl Failure {
    /// Whether nothing came at all.
    pub(super) fn is_silence(&self) -> bool {
        self.kind == Kind::Timeout
    }

    pub(super) fn timeout(script: &str, after: Duration) -> Self {
        let text = format!("no answer to `{script}` within {after:?}");
        Self { kind: Kind::Timeout, text, answered: false }
    }

    /// The server has not taken a subscription.
    pub(super) fn not_subscribed() -> Self {
        let text = "the subscription is refused: may the user SUBSCRIBE to the channel?".to_owned();
        Self { kind: Kind::NoPermission, text, answered: true }
    }

    /// Why there is no connection.
    pub(super) fn of_connection(error: RedisError) -> Self {
        Self { answered: false, ..Self::from(error) }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let text = error.details().to_owned();
        let answered = Kind::of_reply(&text, error.kind());
        let kind = answered.unwrap_or(match error.kind() {
            ErrorKind::Timeout => Kind::Timeout,
            ErrorKind::Auth => Kind::Auth,
            ErrorKind::Backpressure => Kind::QueueFull,
            ErrorKind::Protocol | ErrorKind::Parse => Kind::Protocol,
            ErrorKind::Tls => Kind::Tls,
            // What rustls cannot read comes as an I/O error: another protocol, a certificate that nobody trusts.
            ErrorKind::IO if text.contains("InvalidData") || text.contains("tls handshake") => {
                Kind::Tls
            }
            _ => Kind::Connection,
        });
        Self { kind, text, answered: answered.is_some() }
    }
}

impl From<BadReply> for Failure {
    fn from(error: BadReply) -> Self {
        Self { kind: Kind::Reply, text: error.to_string(), answered: true }
    }
}
