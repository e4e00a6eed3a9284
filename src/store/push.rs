//! Subscribes to the fleet's news, keeps the subscription, and has every scope read again if some
//! may have been lost.
//!
//! On one server (or behind Sentinel) all use one channel. In a Cluster a message on such a channel
//! goes to every node; there each rule has a shard channel, in the slot of its keys, which only the
//! nodes of that slot serve. Servers before version 7 have none and use ordinary channels of the
//! same names.

use std::{
    collections::BTreeSet,
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
    time::MissedTickBehavior,
};

use super::{
    failure::Failure,
    news::{self, News},
};

/// How often a subscription is checked, and in a Cluster renewed. A slot that moves to another node
/// takes its channels along, and the old node only ends the subscription.
const RENEW: Duration = Duration::from_secs(1);

/// The command and the channel that publish news of a scope.
pub(super) type Channel = (&'static str, String);

/// The subscriptions of one client.
#[derive(Debug)]
pub(super) struct Push {
    subscriber: SubscriberClient,
    prefix: String,
    clustered: bool,
    channels: Mutex<BTreeSet<String>>,
    added: Notify,
    /// Why the latest subscription failed.
    refused: Mutex<Option<Failure>>,
    subscribed: AtomicBool,
}

impl Push {
    pub(super) fn new(subscriber: SubscriberClient, prefix: &str, clustered: bool) -> Self {
        let channels = if clustered { BTreeSet::new() } else { [whole(prefix).1].into() };
        Self {
            subscriber,
            prefix: prefix.to_owned(),
            clustered,
            channels: Mutex::new(channels),
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

    /// The channel of a rule's news; subscribed from now on.
    pub(super) fn channel(&self, rule: &str) -> Channel {
        if !self.clustered {
            return whole(&self.prefix);
        }
        let channel = format!("{}:{{{rule}}}:news", self.prefix);
        if self.channels.lock().insert(channel.clone()) {
            self.added.notify_one();
        }
        ("SPUBLISH", channel)
    }

    /// Listens until the client ends. `start` connects. After each (re)connection and each gap, the
    /// listener gets [`News::Resync`], because push messages arrive at most once.
    pub(super) async fn listen(&self, news: broadcast::Sender<News>, start: impl FnOnce()) {
        let messages = self.subscriber.message_rx();
        // Reading must not wait for a node that does not take its subscription.
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
            let may_have_lost = tokio::select! {
                connection = connections.recv() => match connection {
                    Ok(_) | Err(RecvError::Lagged(_)) => true,
                    Err(RecvError::Closed) => return,
                },
                Ok(_) = moves.recv() => true,
                () = self.added.notified() => true,
                _ = renew.tick() => {
                    if !self.clustered && self.is_in_force().await {
                        continue;
                    }
                    false
                }
            };
            let missed = !self.subscribed.load(Ordering::Relaxed);
            self.subscribe().await;
            if may_have_lost || (missed && self.subscribed.load(Ordering::Relaxed)) {
                news.send(News::Resync).ok();
            }
        }
    }

    /// fred renews the subscription if it remembers the channel; otherwise it is renewed here.
    async fn subscribe(&self) {
        let channels: Vec<_> = self.channels.lock().iter().cloned().collect();
        for channel in channels {
            let sharded =
                self.clustered && self.subscriber.ssubscribe(channel.clone()).await.is_ok();
            if !sharded {
                self.subscriber.subscribe(channel).await.ok();
            }
        }
        if self.clustered {
            self.subscribed.store(true, Ordering::Relaxed);
        } else {
            self.is_in_force().await;
        }
    }

    /// Whether the server treats this connection as a subscriber. fred drops the reply to a
    /// subscription, but a server replies to the PING of a subscriber with a list, and to any other
    /// with a word. The client closes a connection without a reply, even if a firewall keeps its
    /// own side open.
    async fn is_in_force(&self) -> bool {
        let answer = self.subscriber.ping::<Value>(None).await;
        let subscribed = matches!(answer, Ok(Value::Array(_)));
        let mut refused = self.refused.lock();
        match answer {
            Ok(Value::Array(_)) => *refused = None,
            Ok(_) if refused.is_none() => *refused = Some(Failure::not_subscribed()),
            Ok(_) => {}
            // The refusal itself, if it comes after the question.
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
