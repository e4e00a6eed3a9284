//! The keys and arguments of the scripts: the only place that lists them, for Rust and Lua.
//!
//! All moments and lengths are microseconds; 0 means none, unless a field says otherwise.

use std::sync::Arc;

use super::fields::{Field, Pass, joined, passed};
use crate::limiter::{cooldown::KnownPhase, learn::KnownRate, load::Tally};

passed! {
    /// The limits of a bucket.
    struct LimitFields {
        /// Tokens per second; empty = none.
        rate: String,
        burst: u32,
        cost: u32,
        /// `tokens:window,...`
        quotas: String,
    }

    /// When a scope cools down, and how it opens again (`CooldownPolicy`).
    struct PolicyFields {
        after: String,
        /// `ratio`: the share.
        share: String,
        /// Of how many verdicts; 0 = no ratio.
        of: u32,
        shortest: i64,
        longest: i64,
        forget_after: i64,
        probe: bool,
        grow: String,
        max: i64,
        respect_retry_after: bool,
        ramp: i64,
    }

    /// How a rate is learned; all empty if it is fixed.
    struct LearnFields {
        start: String,
        floor: String,
        back_off: String,
        patience: String,
    }

    /// How a script publishes.
    struct NewsFields {
        /// PUBLISH or SPUBLISH.
        command: &'static str,
        channel: String,
        /// The name of the scope, the bucket or the shard in the news.
        name: String,
    }

    /// The keys of a call for tickets.
    struct TakeKeys {
        bucket: String,
        cooldown: String,
        /// The members that wait for the bucket.
        waiting: String,
        /// The members that are back (`lib/away.lua`).
        back: String,
        /// The memory of the shard (`lib/memory.lua`).
        memory: String,
        /// The bucket of the user, if users have limits of their own.
        user: Option<String>,
    }

    /// Takes tickets.
    struct TakeArguments {
        /// How many.
        wanted: u32,
        /// How many the member holds unused.
        held: u32,
        /// The latest acceptable wait.
        bound: i64,
        /// The lease of a probe.
        lease: i64,
        member: Arc<str>,
        /// Whether to empty the bucket first, because the member is back from an outage.
        drain: bool,
        /// Whether to void what the bucket handed out ahead, because the limits have changed.
        void: bool,
        /// Until when the member waits for the reply, on the store's clock; 0 = not known.
        expires: i64,
        /// Tickets that are handed back: `moment,...`
        returned: String,
        /// The epoch, as the member knows it.
        epoch: u64,
        /// Its phase.
        phase: KnownPhase,
        holds_probe: bool,
        /// Whether the cooldown is the bucket's own.
        own: bool,
        limits: LimitFields,
        /// Whether the rule cools down.
        cools: bool,
        policy: PolicyFields,
        /// The learned rate, as the member knows it.
        learned: KnownRate,
        learn: LearnFields,
        /// The windows of the quotas, as the member heard of them: `told;length:start:taken,...`
        windows: String,
        /// What the member did without the store (`lib/away.lua`); empty if it was there.
        away: String,
        /// The latest ticket that the member knows of: `moment:told:members`
        latest: String,
        /// Its epoch.
        latest_epoch: u64,
        /// The memory of the shard that the member knows.
        memory: i64,
        /// Members that it knows of.
        fleet: u32,
        /// The limits of the user.
        user: Option<LimitFields>,
    }

    /// The key of a cooldown.
    struct CooldownKey {
        cooldown: String,
    }

    /// Reports what came back.
    struct ReportArguments {
        member: Arc<str>,
        /// The epoch of the grant.
        epoch: u64,
        /// The probe's grant.
        probe: i64,
        /// ok, block, silence, refusal or nothing.
        answer: &'static str,
        /// The weight of the block.
        weight: f64,
        /// The wait that the site asked for.
        retry_after: i64,
        /// Successes since the last report.
        oks: u32,
        /// From 0 to 1.
        draw: f64,
        /// Whether the block is a sure sign.
        sure: bool,
        /// The block's letter.
        kind: String,
        /// The rate that the site names, in tokens per second; empty = none.
        named: String,
        /// How long that is true.
        lasts: i64,
        /// How long the site wants nothing sent.
        hold: i64,
        /// Most errors; 0 if this is none.
        most_errors: u64,
        /// In so long.
        error_window: i64,
        /// What the member has counted of the load (`lib/load.lua`); empty = nothing.
        load: String,
        news: NewsFields,
        policy: PolicyFields,
    }

    /// Trips or clears a cooldown manually.
    struct SetArguments {
        member: Arc<str>,
        /// trip or clear.
        action: &'static str,
        length: i64,
        news: NewsFields,
        policy: PolicyFields,
    }

    /// The keys of a bucket and its cooldown.
    struct RateKeys {
        bucket: String,
        cooldown: String,
    }

    /// Changes a learned rate manually.
    struct RateArguments {
        member: Arc<str>,
        /// set or forget.
        action: &'static str,
        /// Tokens per second; empty = as it is.
        rate: String,
        /// 1 or 0; empty = as it is.
        frozen: String,
        limits: LimitFields,
        learned: KnownRate,
        learn: LearnFields,
        news: NewsFields,
        policy: PolicyFields,
    }

    /// The key of a shard's memory.
    struct MemoryKeys {
        memory: String,
    }

    /// Says which memory of a shard a member knows.
    struct MemoryArguments {
        member: Arc<str>,
        /// The memory that it knows of.
        memory: i64,
        /// Members that it knows of.
        fleet: u32,
        /// The memory before, of which it has reported all that it knew.
        reported: i64,
        news: NewsFields,
    }

    /// The keys of the slots of a bucket.
    struct SlotsKeys {
        slots: String,
        memory: String,
    }

    /// Asks for slots.
    struct SlotsArguments {
        /// The member of the slots: one queue.
        member: Arc<str>,
        /// Most slots over the fleet.
        most: u32,
        /// Slots that it uses.
        under_way: u32,
        /// Slots that it could use; 0 = it leaves.
        wanted: u32,
        /// Members of the fleet that it knows of.
        fleet: u32,
        /// Whether it began requests without the store.
        was_local: bool,
        /// The memory of the shard that it knows.
        memory: i64,
        news: NewsFields,
    }

    /// The keys of one scope.
    struct ScopeKeys {
        bucket: String,
        cooldown: String,
        /// The members that wait for the bucket.
        waiting: String,
    }

    /// The keys of one scope of a forecast.
    struct WhenScopeKeys {
        bucket: String,
        cooldown: String,
        /// The members that wait for the bucket.
        waiting: String,
        slots: String,
        /// The bucket of the user.
        user: String,
    }

    /// The keys of scopes of one shard, and of its memory.
    struct WhenKeys {
        memory: String,
        scope: Vec<WhenScopeKeys>,
    }

    /// One scope of a forecast.
    struct WhenScope {
        /// Whether the cooldown is the bucket's own.
        own: bool,
        /// The learned rate, as the member knows it.
        learned: KnownRate,
        /// The member of the slots that asks; empty = none.
        queue: Arc<str>,
    }

    /// When the next request of some scopes of a rule could go.
    struct WhenArguments {
        limits: LimitFields,
        /// The limits of the user; all empty if it has none.
        user: LimitFields,
        /// Most slots over the fleet; 0 = no limit.
        parallel: u32,
        cools: bool,
        policy: PolicyFields,
        learn: LearnFields,
        scope: Vec<WhenScope>,
    }

    /// The keys of scopes of one shard.
    struct SurveyKeys {
        scope: Vec<ScopeKeys>,
    }

    /// The key of the members that run.
    struct MembersKeys {
        members: String,
    }

    /// Says that a member runs.
    struct MembersArguments {
        member: Arc<str>,
        /// How long it counts without news; 0 = it leaves.
        life: i64,
        /// The schema of its keys, news and arguments.
        schema: &'static str,
    }

    /// The keys of the roster.
    struct RosterKeys {
        /// Members by the time they were last heard.
        members: String,
        figures: String,
    }

    /// Publishes a member's figures.
    struct AnnounceArguments {
        member: Arc<str>,
        /// JSON; empty = it leaves.
        figures: String,
        /// How long they are kept without news.
        kept: i64,
    }

    /// Reads the roster.
    struct RosterArguments {
        /// Most members.
        most: u32,
    }
}

impl Pass for KnownPhase {
    fn pass(self, to: &mut Vec<String>) {
        to.push(match self {
            Self::Open => "open".to_owned(),
            Self::Cooling(left) => format!("cooling:{left}"),
            Self::Probing(left) => format!("probing:{left}"),
        });
    }
}

impl Pass for KnownRate {
    fn pass(self, to: &mut Vec<String>) {
        let Self { turn, rate, mark, frozen, .. } = self;
        to.push(format!("{turn} {rate} {mark} {}", u8::from(frozen)));
    }
}

/// What a member has counted of the load, as `lib/load.lua` reads it.
pub(super) fn tally(tally: Tally) -> String {
    let Tally { over, sent, answered, failed, late, own, quickest } = tally;
    format!("{over} {sent} {answered} {failed} {late} {own} {quickest}")
}
