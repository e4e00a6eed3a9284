//! How long the store has been silent, by the calls that it left unanswered, and what a member does meanwhile.
//!
//! A call that fails tells a member nothing of the others: they may draw on, and what it sent on its own would come on top
//! of that. So a member of a fleet first keeps still: it uses the tickets that it holds, and for [`PATIENCE`] sends
//! nothing else. Before it goes alone it asks once more, and only if that call fails too, it does. Whoever is out of
//! reach for a shorter time has sent nothing without a ticket of the store when it is back, so that no bound is broken,
//! whichever members were cut off, whenever each of them noticed. A store that was silent for all of them for longer
//! leaves those that are not back yet their shares (`AWAY` in `lua/lib/away.lua`).
//!
//! Who knows of no other member goes on at once, but who has not reached the store since it started knows nothing: it
//! keeps still until it has.

use std::time::Duration;

use parking_lot::Mutex;

use super::{Shared, share};
use crate::{
    limiter::policy::Limits,
    rules::{Rule, settings::OnFailure},
    runtime::clock::{self, Instant},
    store::{Ask, Granted, Scope, keys::Keys},
};

/// How long a member of a fleet keeps still: longer than a store takes to restart or a failover, with what it takes to
/// connect again. `AWAY` in `lua/lib/away.lua` is shorter by that.
const PATIENCE: Duration = Duration::from_secs(3);
/// When who waits meanwhile looks again: as often as the store is knocked at.
const AGAIN: Duration = Duration::from_millis(250);

/// The calls that were left unanswered since the last answer.
#[derive(Debug, Default)]
pub(in crate::store) struct Silence(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// When the last answer came.
    heard: Option<Instant>,
    /// When the first and the latest of them were sent.
    unanswered: Option<(Instant, Instant)>,
}

impl Silence {
    /// A call that was sent then has been answered, or has failed.
    pub(super) fn note(&self, sent: Instant, answered: bool) {
        if answered { self.answered() } else { self.unanswered(sent) }
    }

    /// A call that was sent then has failed. One that others have overtaken says nothing.
    fn unanswered(&self, sent: Instant) {
        let mut calls = self.0.lock();
        if calls.heard.is_none_or(|heard| sent >= heard) {
            let (first, latest) = calls.unanswered.unwrap_or((sent, sent));
            calls.unanswered = Some((first.min(sent), latest.max(sent)));
        }
    }

    /// An answer has come.
    fn answered(&self) {
        *self.0.lock() = Calls { heard: Some(clock::now()), unanswered: None };
    }

    /// When it began, as far as is known.
    fn since(&self) -> Option<Instant> {
        self.0.lock().unanswered.map(|(first, _)| first)
    }

    /// For how long it is known to have lasted: from the first to the latest call.
    fn lasted(&self) -> Duration {
        let unanswered = self.0.lock().unanswered;
        unanswered.map_or(Duration::ZERO, |(first, latest)| latest - first)
    }
}

impl Shared {
    /// How long the store has been silent, as far as anybody asked it: in all, or in this scope (a node of a cluster may
    /// be away alone, or one script refused).
    pub(super) fn silent_for(&self, keys: &Keys) -> Duration {
        let since = [self.silence.since(), keys.silence.since()].into_iter().flatten().min();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether this member may go alone.
    fn may_go_alone(&self, keys: &Keys) -> bool {
        self.members() < 2 || self.silence.lasted().max(keys.silence.lasted()) >= PATIENCE
    }

    /// Whether the store is to be asked once more, though it is away: before this member goes alone.
    pub(super) fn asks_once_more(&self, keys: &Keys) -> bool {
        self.settings.on_failure == OnFailure::Local
            && !self.may_go_alone(keys)
            && self.silent_for(keys) >= PATIENCE
    }

    /// Whether this member keeps still for now: there are limits that others use too, or may.
    pub(super) fn keeps_still(&self, keys: &Keys, limits: &Limits) -> bool {
        self.settings.on_failure == OnFailure::Local
            && !limits.is_unlimited()
            && (self.knows_no_share() || !self.may_go_alone(keys))
    }

    /// The answer to who asks meanwhile: no tickets. Of what this member saved up on its own before, nothing is left.
    pub(super) fn still(
        &self,
        scope: &Scope,
        keys: &Keys,
        rule: &Rule,
        whole: &Limits,
        ask: &Ask,
    ) -> Granted {
        let limits = share::scaled(whole, self.fleet().share);
        let rule = Rule { limits, ..rule.clone() };
        let ask = Ask { wanted: 0, drain: true, returned: Vec::new(), ..ask.clone() };
        let here = self.here.take_now(scope, &rule, &ask);
        let left = PATIENCE.saturating_sub(self.silent_for(keys));
        let again = if left.is_zero() { AGAIN } else { left.min(AGAIN) };
        Granted {
            rate: whole.rate.unwrap_or(0.0),
            come_back: here.come_back.max(here.now + clock::micros(again)),
            learned: ask.learned,
            alone: true,
            ..here
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn silence_lasts_from_the_first_to_the_latest_call_that_was_left_unanswered() {
        let (silence, start) = (Silence::default(), clock::now());
        assert_eq!(silence.lasted(), Duration::ZERO);
        silence.unanswered(start + seconds(10));
        assert_eq!(silence.lasted(), Duration::ZERO, "one call may have been lost");
        silence.unanswered(start + seconds(14));
        silence.unanswered(start + seconds(12));
        assert_eq!(silence.lasted(), seconds(4));
        assert_eq!(silence.since(), Some(start + seconds(10)));
        silence.answered();
        assert_eq!((silence.lasted(), silence.since()), (Duration::ZERO, None));
    }

    #[test]
    fn a_call_that_was_overtaken_by_one_that_was_answered_says_nothing() {
        let silence = Silence::default();
        let early = clock::now();
        silence.answered();
        silence.unanswered(early);
        let heard = silence.0.lock().heard.expect("it was answered");
        assert_eq!(silence.since().is_some(), early >= heard);
        silence.unanswered(heard + seconds(1));
        silence.unanswered(heard + seconds(2));
        assert!(silence.lasted() >= seconds(1));
    }
}
