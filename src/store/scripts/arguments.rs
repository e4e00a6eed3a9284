//! The keys and arguments of the scripts. This is the only list of them, for Rust and Lua.
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
        /// `ratio`: the share of blocks.
        share: String,
        /// `ratio`: the number of verdicts; 0 = no ratio.
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

    /// How a script publishes news.
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
        /// The members that are back from an outage (`lib/away.lua`).
        back: String,
        /// The memory of the shard (`lib/memory.lua`).
        memory: String,
        /// The bucket of the user, if users have limits of their own.
        user: Option<String>,
    }

    /// Takes tickets.
    struct TakeArguments {
        /// The number of tickets.
        wanted: u32,
        /// Tickets that the member holds unused.
        held: u32,
        /// The longest acceptable wait.
        bound: i64,
        /// The lease of a probe.
        lease: i64,
        member: Arc<str>,
        /// Whether to empty the bucket first, because the member is back from an outage.
        drain: bool,
        /// Whether to void what the bucket handed out ahead, because the limits have changed.
        void: bool,
        /// When the member gives up waiting for the reply, on the store's clock; 0 = unknown.
        expires: i64,
        /// Tickets that are handed back: `moment,...`
        returned: String,
        /// The epoch, as the member knows it.
        epoch: u64,
        /// The phase, as the member knows it.
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
        /// The windows of the quotas as last known: `heard;length:start:taken,...`
        windows: String,
        /// The member's decisions without the store (`lib/away.lua`); empty if it was never away.
        away: String,
        /// The latest ticket that the member knows of: `moment:heard:members`
        latest: String,
        /// The epoch of that ticket.
        latest_epoch: u64,
        /// The memory of the shard that the member knows.
        memory: i64,
        /// Members that the member knows of.
        fleet: u32,
        /// The limits of the user.
        user: Option<LimitFields>,
    }

    /// The key of a cooldown.
    struct CooldownKey {
        cooldown: String,
    }

    /// Reports a response.
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
        /// A uniform draw from 0 to 1.
        draw: f64,
        /// Whether the block is a sure sign.
        sure: bool,
        /// The block's letter.
        kind: String,
        /// The rate that the site names, in tokens per second; empty = none.
        named: String,
        /// How long that rate applies.
        lasts: i64,
        /// How long the site wants no requests.
        hold: i64,
        /// Limit of errors; 0 if the response is not an error.
        most_errors: u64,
        /// The window of that limit.
        error_window: i64,
        /// The member's counts of the load (`lib/load.lua`); empty = none.
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
        /// Tokens per second; empty = unchanged.
        rate: String,
        /// 1 or 0; empty = unchanged.
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

    /// Reports which memory of a shard a member knows.
    struct MemoryArguments {
        member: Arc<str>,
        /// The memory that the member knows.
        memory: i64,
        /// Members that it knows of.
        fleet: u32,
        /// The previous memory, whose contents the member has reported completely.
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
        /// The member in the slots: one queue.
        member: Arc<str>,
        /// Most slots over the fleet.
        most: u32,
        /// Slots that it uses.
        under_way: u32,
        /// Slots that it could use; 0 = it leaves.
        wanted: u32,
        /// Members of the fleet that it knows of.
        fleet: u32,
        /// Whether it started requests without the store.
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
        /// The member in the slots that asks; empty = none.
        queue: Arc<str>,
    }

    /// When the next request of some scopes of a rule could be sent.
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

    /// Reports that a member is running.
    struct MembersArguments {
        member: Arc<str>,
        /// How long it counts as running without a heartbeat; 0 = it leaves.
        life: i64,
        /// The schema of its keys, news and arguments.
        schema: &'static str,
    }

    /// The keys of the roster.
    struct RosterKeys {
        /// Members by the time of their last report.
        members: String,
        figures: String,
    }

    /// Publishes a member's figures.
    struct AnnounceArguments {
        member: Arc<str>,
        /// JSON; empty = it leaves.
        figures: String,
        /// How long the figures are kept without an update.
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
            Self::Opened => "opened".to_owned(),
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

/// A member's counts of the load, as `lib/load.lua` reads them.
pub(super) fn tally(tally: Tally) -> String {
    let Tally { over, sent, answered, failed, late, own, quickest } = tally;
    format!("{over} {sent} {answered} {failed} {late} {own} {quickest}")
}
