//! Heartbeats: a member reports that it is alive, learns the number of members, and checks whether
//! the store replies.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Failure, News, SharedStore,
    scripts::{self, Call, Members, MembersArguments, MembersKeys, MembersReply},
};
use crate::runtime::clock;

/// Interval of heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a member counts as running without a heartbeat: three intervals.
const LIFE: Duration = Duration::from_secs(3);
/// The size of the fleet is the maximum of this many heartbeats. A store that returns or has lost its data hears from
/// one member after the other, and a member in local mode must not consider itself half of the fleet.
const LATELY: usize = 4;
/// How often a member tries to reach a store that is away. Each adds up to half of this, so that members do not return
/// in step.
const KNOCK: Duration = Duration::from_millis(250);
/// Heartbeats without a reply after which a connection counts as dead. A firewall that has
/// forgotten it sends no reset, and the kernel would try for a quarter of an hour.
const DEAD: u32 = 4;

/// The schema of the keys, the news and the scripts' arguments. Increase it with a change after which old and new
/// members cannot work together, and add the number to the prefix of the keys.
const SCHEMA: &str = "1";
/// The schema in a Cluster. In schema 1 its keys had the tags of rules; now they have those of shards, so the prefix
/// needs no number.
const CLUSTER_SCHEMA: &str = "2";

/// Heartbeats without a subscription after which it counts as lost.
const DEAF: u32 = 3;

/// Whether the news reach this member, as last reported.
#[derive(Debug, Default)]
struct Hearing {
    /// Heartbeats in a row without a subscription.
    deaf: u32,
    said_deaf: bool,
}

fn knock() -> Duration {
    KNOCK + KNOCK.mul_f64(fastrand::f64() / 2.0)
}

impl SharedStore {
    /// Sends a heartbeat every second, and more often while the store is away.
    pub(super) async fn send_heartbeats(&self) {
        let (mut silent, mut lately, mut hearing) = (0, [0; LATELY], Hearing::default());
        while !self.stopped.is_cancelled() {
            let result = tokio::select! {
                result = self.hello(LIFE) => result,
                // A call failed, perhaps only its reply was lost: the store may already be back.
                () = self.lost_and_knock() => continue,
            };
            silent = if result.as_ref().is_err_and(Failure::is_silence) { silent + 1 } else { 0 };
            if silent > 0 && silent % DEAD == 0 {
                self.server.reconnect().await;
            }
            let pause = match result {
                Ok((members, new)) => {
                    lately.rotate_right(1);
                    lately[0] = members;
                    let most = lately.into_iter().fold(1, u32::max);
                    self.members.store(most, Ordering::Relaxed);
                    if new && self.is_up() {
                        self.recovery.all_due();
                        self.rejoin.report();
                        // The store lost its cooldowns too, so every member that knows one reports it.
                        self.news.send(News::Resync).ok();
                    }
                    self.metrics.member.members.set(i64::from(members));
                    self.turn(true, None);
                    self.note_hearing(&mut hearing);
                    let places = self.server.places();
                    self.places.send_if_modified(|known| {
                        let moved = *known != places;
                        *known = places;
                        moved
                    });
                    HEARTBEAT
                }
                Err(failure) => {
                    self.metrics.store_errors(failure.kind.as_str()).inc();
                    self.turn(false, Some(&failure));
                    knock()
                }
            };
            self.pause(pause).await;
        }
    }

    /// Reports when the news stop reaching this member, and when they arrive again.
    fn note_hearing(&self, hearing: &mut Hearing) {
        let (hears, refused) = self.server.hears();
        hearing.deaf = if hears { 0 } else { hearing.deaf + 1 };
        // A connection may still be opening, but a refusal is certain.
        let is_known = hears || refused.is_some() || hearing.deaf >= DEAF;
        if !is_known {
            return;
        }
        self.metrics.member.store_subscribed.set(i64::from(hears));
        if hears == hearing.said_deaf {
            hearing.said_deaf = !hears;
            let reason = refused.map(|failure| failure.text);
            self.news.send(News::Heard { hears, reason }).ok();
        }
    }

    /// Waits for the next heartbeat, or until the store is closed.
    async fn pause(&self, length: Duration) {
        tokio::select! {
            () = tokio::time::sleep(length) => {}
            () = self.lost_and_knock(), if length == HEARTBEAT => {}
            () = self.stopped.cancelled() => {}
        }
    }

    /// Waits until it is time to try again, after a failed call.
    async fn lost_and_knock(&self) {
        self.lost.notified().await;
        tokio::time::sleep(knock()).await;
    }

    /// The number of members that the store knows, and whether this one was unknown.
    pub(super) async fn hello(&self, life: Duration) -> Result<(u32, bool), Failure> {
        let keys = MembersKeys { members: format!("{}:members", self.settings.prefix) };
        let (member, life) = (Arc::clone(&self.member), clock::micros(life));
        let schema = if self.server.is_clustered() { CLUSTER_SCHEMA } else { SCHEMA };
        let arguments = MembersArguments { member, life, schema };
        let (keys, arguments) = (scripts::values(keys), scripts::values(arguments));
        let sent = clock::now();
        let reply = self.server.run(Members::script(), keys, arguments).await;
        let answer = reply.and_then(|reply| match scripts::read::<Members>(reply)? {
            MembersReply { count, is_new, other_schema } if other_schema.is_empty() => {
                Ok((count, is_new))
            }
            MembersReply { count, other_schema, .. } => Err(Failure::schema(&other_schema, count)),
        });
        self.note_call(sent, answer.is_ok());
        answer
    }
}
