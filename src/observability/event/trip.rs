//! A cooldown that began: who tripped it, why, and what it rests on.

use std::{sync::Arc, time::Duration};

use crate::{
    classify::verdict::{Evidence, Verdict},
    limiter::cooldown::{Blocks, Cause},
    target::Target,
};

/// A cooldown that began.
#[derive(Debug, Clone)]
pub struct Trip {
    /// Why; `None` where the store lost its data meanwhile, and knows only that the scope cools down.
    pub cause: Option<Cause>,
    /// The block that tripped it; `None` for a person's hand, or where the cause is not known either.
    pub by: Option<Verdict>,
    /// The blocks that built the streak (or the share), over the whole fleet.
    pub blocks: Blocks,
    /// The streak at that moment (a sum of weights).
    pub streak: f64,
    /// How long the fleet is paused.
    pub length: Duration,
    /// The member whose report tripped it; empty where that is not known.
    pub member: Arc<str>,
    /// The answer that tripped it, where this member saw it.
    pub answer: Option<Tripping>,
    /// Whether the rule only observes, so that nothing is really paused.
    pub observe: bool,
    /// Who tripped it by hand, as they call themselves.
    pub who: Option<Arc<str>>,
    /// Whether this member's report caused it.
    pub made_by_us: bool,
}

impl Trip {
    /// The cause, as events and logs name it.
    pub fn cause(&self) -> &'static str {
        self.cause.map_or("unknown", Cause::as_str)
    }

    /// What the answer that tripped it was judged by, in one phrase.
    pub fn evidence(&self) -> Option<String> {
        self.answer.as_ref()?.evidence.as_deref().map(super::text::evidence)
    }

    /// What tripped it, as events and logs name it: a verdict, a pause or a person's hand.
    pub fn by(&self) -> &'static str {
        match (self.by, self.cause) {
            (Some(verdict), _) => verdict.as_str(),
            (None, None) => "unknown",
            (None, Some(cause)) if cause.is_pause() => cause.as_str(),
            (None, Some(_)) => Cause::Hand.as_str(),
        }
    }
}

/// The answer that tripped a cooldown.
#[derive(Debug, Clone)]
pub struct Tripping {
    /// Where the request went; its query is never shown.
    pub target: Target,
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// What the verdict rests on.
    pub evidence: Option<Box<Evidence>>,
}
