//! The server that runs the scripts: Redis or Valkey through the client, or a custom one.
//!
//! Simulations use a custom server. Everything above it (arguments, replies, fallback, gate) and the scripts are real;
//! only the server is simulated.

use std::{fmt::Debug, future::Future, pin::Pin, time::Duration};

use fred::types::Value;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    task::JoinHandle,
};

use super::{
    failure::Failure,
    news::{self, News},
    push::{self, Channel},
    redis::{Redis, ServerAddress},
    scripts::Script,
    shard::Shard,
};

/// One value of a script's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An integer.
    Whole(i64),
    /// A string.
    Text(String),
    /// A table.
    List(Vec<Reply>),
}

impl Reply {
    /// The reply of `members` for a known member among this many.
    #[must_use]
    pub fn members(count: i64) -> Self {
        Self::List(vec![Self::Whole(count), Self::Whole(0), Self::Text(String::new())])
    }

    /// The reply of `memory` if the store has lost nothing.
    #[must_use]
    pub fn memory() -> Self {
        Self::List(vec![Self::Whole(1)])
    }
}

/// A pending reply: the reply, or an error message.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, String>> + Send + 'a>>;

/// A custom server: runs scripts one at a time, each with its keys and arguments, and pushes their
/// messages.
pub trait ScriptServer: Send + Sync + Debug {
    /// Runs the script `text`; `name` is for messages.
    fn run<'a>(
        &'a self,
        name: &'static str,
        text: &'static str,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Answering<'a>;

    /// Subscribes to the messages on `channel`.
    fn subscribe(&self, channel: &str) -> broadcast::Receiver<String>;
}

/// The server that runs the scripts.
#[derive(Debug)]
pub(super) enum Server {
    /// Redis or Valkey.
    Redis(Box<Redis>),
    /// A custom server, and the longest wait for its reply.
    Own(Box<dyn ScriptServer>, Duration),
}

impl Server {
    pub(super) async fn run(
        &self,
        script: &'static Script,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Result<Value, Failure> {
        match self {
            Self::Redis(redis) => redis.run(script, keys, arguments).await,
            Self::Own(server, timeout) => {
                let call = server.run(script.name, &script.text, keys, arguments);
                match tokio::time::timeout(*timeout, call).await {
                    Ok(Ok(reply)) => Ok(reply.into()),
                    Ok(Err(text)) => Err(Failure::script(text)),
                    Err(_) => Err(Failure::timeout(script.name, *timeout)),
                }
            }
        }
    }

    /// The client, if this is a real store.
    pub(super) fn redis(&self) -> Option<&Redis> {
        match self {
            Self::Redis(redis) => Some(redis),
            Self::Own(..) => None,
        }
    }

    /// Whether this is a Cluster.
    pub(super) fn is_clustered(&self) -> bool {
        self.redis().is_some_and(Redis::is_clustered)
    }

    /// Runs a task: on the client's runtime of a real store, otherwise on the caller's.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match self {
            Self::Redis(redis) => redis.background.spawn(task),
            Self::Own(..) => tokio::spawn(task),
        }
    }

    /// The channel of a shard's news.
    pub(super) fn channel(&self, prefix: &str, shard: &Shard) -> Channel {
        match self {
            Self::Redis(redis) => redis.push.channel(shard),
            Self::Own(..) => push::whole(prefix),
        }
    }

    /// Listens to the news for ever; see [`push::Push::listen`].
    pub(super) async fn listen(&self, prefix: &str, to: broadcast::Sender<News>) {
        let server = match self {
            Self::Redis(redis) => return redis.listen(to).await,
            Self::Own(server, _) => server,
        };
        let (_, channel) = push::whole(prefix);
        let mut messages = server.subscribe(&channel);
        loop {
            match messages.recv().await {
                Ok(message) => {
                    if let Some(item) = news::parse(&message) {
                        to.send(item).ok();
                    }
                }
                Err(RecvError::Lagged(_)) => {
                    to.send(News::Resync).ok();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Whether news reach this member, and the store's error if not.
    pub(super) fn hears(&self) -> (bool, Option<Failure>) {
        match self {
            Self::Redis(redis) => (redis.push.hears(), redis.push.refused()),
            Self::Own(..) => (true, None),
        }
    }

    /// Replaces connections that no longer receive anything.
    pub(super) async fn reconnect(&self) {
        if let Self::Redis(redis) = self {
            redis.reconnect().await;
        }
    }

    /// The connected servers, in a fixed order.
    pub(super) fn places(&self) -> Vec<ServerAddress> {
        match self {
            Self::Redis(redis) => redis.places(),
            Self::Own(..) => Vec::new(),
        }
    }

    pub(super) async fn quit(&self) {
        if let Self::Redis(redis) = self {
            redis.quit().await;
        }
    }
}

impl From<Reply> for Value {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Whole(number) => Self::Integer(number),
            Reply::Text(text) => Self::String(text.into()),
            Reply::List(list) => Self::Array(list.into_iter().map(Into::into).collect()),
        }
    }
}
