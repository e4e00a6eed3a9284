//! Subscribes to the fleet's news and keeps the subscription. If news may have been lost, every scope is read again.
//!
//! On one server (or behind Sentinel) all members use one channel. In a Cluster a message on such a channel goes to
//! every node. So each shard of a rule has a shard channel in the slot of its keys, which only the nodes of that slot
//! serve. A member subscribes to the channels of the shards that it uses. Servers before version 7 have no shard
//! channels and use ordinary channels with the same names.

use std::{
    collections::VecDeque,
    mem,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fred::{
    clients::SubscriberClient,
    prelude::{ClientLike, EventInterface, PubsubInterface},
    types::Value,
};
use parking_lot::Mutex;
use tokio::{
    sync::{
        Notify,
        broadcast::{self, error::RecvError},
    },
    task::JoinSet,
    time::MissedTickBehavior,
};

use super::{
    failure::Failure,
    news::{self, News},
    shard::Shard,
};

/// How often a subscription is checked, and in a Cluster renewed. A slot that moves to another node takes its channels
/// along, and the old node just ends the subscription.
const RENEW: Duration = Duration::from_secs(1);
/// How many subscriptions are renewed at a time.
const RENEWED: usize = 64;

/// The command and the channel that publish news of a scope.
pub(super) type Channel = (&'static str, String);

/// The subscriptions of one client.
#[derive(Debug)]
pub(super) struct Push {
    subscriber: SubscriberClient,
    prefix: String,
    clustered: bool,
    channels: Mutex<VecDeque<String>>,
    /// Channels that were added since the latest subscription.
    new: Mutex<Vec<String>>,
    added: Notify,
    /// Why the latest subscription failed.
    refused: Mutex<Option<Failure>>,
    subscribed: AtomicBool,
}

impl Push {
    pub(super) fn new(subscriber: SubscriberClient, prefix: &str, clustered: bool) -> Self {
        let channels = if clustered { VecDeque::new() } else { [whole(prefix).1].into() };
        Self {
            subscriber,
            prefix: prefix.to_owned(),
            clustered,
            channels: Mutex::new(channels),
            new: Mutex::default(),
            added: Notify::new(),
            refused: Mutex::default(),
            subscribed: AtomicBool::new(false),
        }
    }

    /// Whether news reach this member.
    pub(super) fn hears(&self) -> bool {
        self.subscribed.load(Ordering::Relaxed) && self.subscriber.is_connected()
    }

    /// Why they do not arrive, if the store has said so.
    pub(super) fn refused(&self) -> Option<Failure> {
        self.refused.lock().clone()
    }

    /// The channel of a shard's news, once for each shard; subscribed from now on.
    pub(super) fn channel(&self, shard: &Shard) -> Channel {
        if !self.clustered {
            return whole(&self.prefix);
        }
        let channel = shard.channel(&self.prefix);
        self.channels.lock().push_back(channel.clone());
        self.new.lock().push(channel.clone());
        self.added.notify_one();
        ("SPUBLISH", channel)
    }

    /// Listens until the client ends. `start` connects. After each (re)connection and each gap it sends
    /// [`News::Resync`], because push messages arrive at most once.
    pub(super) async fn listen(&self, news: broadcast::Sender<News>, start: impl FnOnce()) {
        let messages = self.subscriber.message_rx();
        // Reading must not wait for a node that does not accept its subscription.
        tokio::select! {
            () = read(messages, &news) => {}
            () = self.keep_subscribed(&news, start) => {}
        }
    }

    async fn keep_subscribed(&self, news: &broadcast::Sender<News>, start: impl FnOnce()) {
        let mut connections = self.subscriber.reconnect_rx();
        let mut moves = self.subscriber.cluster_change_rx();
        let mut renew = tokio::time::interval(RENEW);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        start();
        loop {
            let (channels, may_have_lost) = tokio::select! {
                connection = connections.recv() => match connection {
                    Ok(_) | Err(RecvError::Lagged(_)) => (self.next(usize::MAX), true),
                    Err(RecvError::Closed) => return,
                },
                Ok(_) = moves.recv() => (self.next(usize::MAX), true),
                () = self.added.notified() => (mem::take(&mut *self.new.lock()), true),
                _ = renew.tick() => {
                    if !self.clustered && self.is_in_force().await {
                        continue;
                    }
                    (self.next(RENEWED), false)
                }
            };
            let missed = !self.subscribed.load(Ordering::Relaxed);
            self.subscribe(channels).await;
            if may_have_lost || (missed && self.subscribed.load(Ordering::Relaxed)) {
                news.send(News::Resync).ok();
            }
        }
    }

    /// The next channels in turn, at most this many.
    fn next(&self, most: usize) -> Vec<String> {
        let mut channels = self.channels.lock();
        let count = channels.len().min(most);
        channels.rotate_left(count);
        channels.iter().rev().take(count).cloned().collect()
    }

    /// fred renews the subscriptions that it remembers; this renews the others. All at once, so that a node without a
    /// reply does not delay the others.
    async fn subscribe(&self, channels: Vec<String>) {
        let mut subscriptions = JoinSet::new();
        for channel in channels {
            let (subscriber, clustered) = (self.subscriber.clone(), self.clustered);
            subscriptions.spawn(async move {
                let sharded = clustered && subscriber.ssubscribe(channel.clone()).await.is_ok();
                if !sharded {
                    subscriber.subscribe(channel).await.ok();
                }
            });
        }
        while subscriptions.join_next().await.is_some() {}
        if self.clustered {
            self.subscribed.store(true, Ordering::Relaxed);
        } else {
            self.is_in_force().await;
        }
    }

    /// Whether the server treats this connection as a subscriber. fred drops the reply to a subscription, but a server
    /// replies to the PING of a subscriber with a list, and to any other PING with a word. The client closes a
    /// connection without a reply, even if a firewall keeps its own side open.
    async fn is_in_force(&self) -> bool {
        let answer = self.subscriber.ping::<Value>(None).await;
        let subscribed = matches!(answer, Ok(Value::Array(_)));
        let mut refused = self.refused.lock();
        match answer {
            Ok(Value::Array(_)) => *refused = None,
            Ok(_) if refused.is_none() => *refused = Some(Failure::not_subscribed()),
            Ok(_) => {}
            // The refusal itself may arrive after the question.
            Err(error) => *refused = Some(Failure::from(error)).filter(|failure| failure.answered),
        }
        self.subscribed.store(subscribed, Ordering::Relaxed);
        subscribed
    }

    pub(super) async fn quit(&self) {
        self.subscriber.quit().await.ok();
    }
}

/// The single channel of a store without a Cluster.
pub(super) fn whole(prefix: &str) -> Channel {
    ("PUBLISH", format!("{prefix}:news"))
}

async fn read(
    mut messages: broadcast::Receiver<fred::types::Message>,
    news: &broadcast::Sender<News>,
) {
    loop {
        match messages.recv().await {
            Ok(message) => {
                if let Some(item) = message.value.as_str().and_then(|text| news::parse(&text)) {
                    news.send(item).ok();
                }
            }
            Err(RecvError::Lagged(_)) => {
                news.send(News::Resync).ok();
            }
            Err(RecvError::Closed) => return,
        }
    }
}
