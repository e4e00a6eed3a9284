//! A trip: the start of a cooldown, with its cause and evidence.

use std::{sync::Arc, time::Duration};

use crate::{
    classify::verdict::{Evidence, Verdict},
    limiter::cooldown::{Blocks, Cause},
    target::Target,
};

/// The start of a cooldown.
#[derive(Debug, Clone)]
pub struct Trip {
    /// The cause; `None` if the store lost it and knows only that the scope cools down.
    pub cause: Option<Cause>,
    /// The block that tripped it; `None` for a manual trip, or if it is unknown.
    pub by: Option<Verdict>,
    /// The blocks of the streak or the share, over the whole fleet.
    pub blocks: Blocks,
    /// The streak at that moment (a sum of weights).
    pub streak: f64,
    /// The length of the cooldown.
    pub length: Duration,
    /// The member whose report tripped it; empty if unknown.
    pub member: Arc<str>,
    /// The response that tripped it, if this member saw it.
    pub answer: Option<Tripping>,
    /// Whether the rule only observes, so that nothing is paused.
    pub observe: bool,
    /// The name that the operator gave, for a manual trip.
    pub who: Option<Arc<str>>,
    /// Whether this member's report caused it.
    pub made_by_us: bool,
}

impl Trip {
    /// The cause, as events and logs name it.
    pub fn cause(&self) -> &'static str {
        self.cause.map_or("unknown", Cause::as_str)
    }

    /// The evidence of the response that tripped it, in one phrase.
    pub fn evidence(&self) -> Option<String> {
        self.answer.as_ref()?.evidence.as_deref().map(super::text::evidence)
    }

    /// What tripped it, as events and logs name it: a verdict, a pause or a manual trip.
    pub fn by(&self) -> &'static str {
        match (self.by, self.cause) {
            (Some(verdict), _) => verdict.as_str(),
            (None, None) => "unknown",
            (None, Some(cause)) if cause.is_pause() => cause.as_str(),
            (None, Some(_)) => Cause::Manual.as_str(),
        }
    }
}

/// The response that tripped a cooldown.
#[derive(Debug, Clone)]
pub struct Tripping {
    /// The requested target; its query is never shown.
    pub target: Target,
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// The evidence of the verdict.
    pub evidence: Option<Box<Evidence>>,
}
