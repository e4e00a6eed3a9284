//! Who runs the scripts: Redis or Valkey through the client, or a server of your own.
//!
//! A server of your own is what a simulation needs: everything above it (arguments, replies, fallback, gate) and the
//! scripts themselves stay the real ones, and only the machine that they run on is another.

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
    redis::{Place, Redis},
    scripts::Script,
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
    /// What `members` answers to one of so many that it knows.
    #[must_use]
    pub fn members(count: i64) -> Self {
        Self::List(vec![Self::Whole(count), Self::Whole(0)])
    }

    /// What `memory` answers where the store has lost nothing.
    #[must_use]
    pub fn memory() -> Self {
        Self::List(vec![Self::Whole(1)])
    }
}

/// An answer that is under way: the reply, or what went wrong in words.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, String>> + Send + 'a>>;

/// A server of your own: runs scripts one at a time, each with its keys and arguments, and pushes what they publish.
pub trait ScriptServer: Send + Sync + Debug {
    /// Runs the script `text`; `name` is for messages.
    fn run<'a>(
        &'a self,
        name: &'static str,
        text: &'static str,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Answering<'a>;

    /// What is published on `channel` from now on.
    fn subscribe(&self, channel: &str) -> broadcast::Receiver<String>;
}

/// Who runs the scripts.
#[derive(Debug)]
pub(super) enum Server {
    /// Redis or Valkey.
    Redis(Box<Redis>),
    /// A server of your own, and the longest wait for its answer.
    Own(Box<dyn ScriptServer>, Duration),
}

impl Server {
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Result<Value, Failure> {
        match self {
            Self::Redis(redis) => redis.run(script, keys, arguments).await,
            Self::Own(server, timeout) => {
                let call = server.run(script.name, script.text, keys, arguments);
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

    /// Runs a task: beside the client to a real store, else where the caller runs.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match self {
            Self::Redis(redis) => redis.apart.spawn(task),
            Self::Own(..) => tokio::spawn(task),
        }
    }

    /// Where the news of `rule` are published.
    pub(super) fn channel(&self, prefix: &str, rule: &str) -> Channel {
        match self {
            Self::Redis(redis) => redis.push.channel(rule),
            Self::Own(..) => push::whole(prefix),
        }
    }

    /// Listens to the news for ever; see [`push::Push::listen`].
    pub(super) async fn listen(&self, prefix: &str, tell: broadcast::Sender<News>) {
        let server = match self {
            Self::Redis(redis) => return redis.listen(tell).await,
            Self::Own(server, _) => server,
        };
        let (_, channel) = push::whole(prefix);
        let mut messages = server.subscribe(&channel);
        loop {
            match messages.recv().await {
                Ok(message) => {
                    if let Some(item) = news::parse(&message) {
                        tell.send(item).ok();
                    }
                }
                Err(RecvError::Lagged(_)) => {
                    tell.send(News::Resync).ok();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Whether news reach this member, and why not, if the store has said so.
    pub(super) fn hears(&self) -> (bool, Option<Failure>) {
        match self {
            Self::Redis(redis) => (redis.push.hears(), redis.push.refused()),
            Self::Own(..) => (true, None),
        }
    }

    /// Makes new connections in place of those on which nothing comes any more.
    pub(super) async fn reconnect(&self) {
        if let Self::Redis(redis) = self {
            redis.reconnect().await;
        }
    }

    /// The servers that there are connections to, in a fixed order.
    pub(super) fn places(&self) -> Vec<Place> {
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
