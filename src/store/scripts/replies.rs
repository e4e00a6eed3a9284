//! The replies of the scripts. This is the only list of their fields, for Rust and Lua.
//!
//! All moments and lengths are microseconds; 0 means none, unless a field says otherwise.

use fred::types::Value;

use super::fields::{BadReply, Field, Read, Values, fields_of, joined, replied, sane};
use crate::{
    limiter::{
        bucket::{BATCH, LONG_AGO, Window},
        cooldown::{self, Blocks, Change, culprit},
        learn::{KnownRate, NamedWall, RateReason},
    },
    store::{
        Peeked, Phase, Reported,
        forecast::{Forecast, Reading},
    },
};

fields_of!(KnownRate {
    turn: u64,
    rate: f64,
    mark: f64,
    frozen: bool,
    why: RateReason,
    wall: Option<NamedWall>,
});

replied! {
    /// The grants.
    struct TakeReply {
        now: i64,
        phase: Phase,
        epoch: u64,
        /// When to come back; 0 = fully served.
        come_back: i64,
        /// Whether only the limits of the user delay the request until then.
        over: bool,
        /// Members that wait for the bucket.
        members: u32,
        streak: f64,
        /// The rate in force, in tokens per second; 0 = none.
        rate: f64,
        windows: Vec<Window>,
        learned: KnownRate,
        /// The memory of the rule; 0 = not read.
        memory: i64,
        tickets: Tickets,
    }

    /// The result of a report.
    struct ReportReply {
        now: i64,
        change: Change,
        epoch: u64,
        /// End of the cooldown; 0 = open.
        till: i64,
        /// After a trip, the streak that tripped.
        streak: f64,
        /// Length of the latest cooldown.
        length: i64,
        /// Cause of the latest trip.
        cause: String,
        /// Letters of its blocks.
        blamed: String,
    }

    /// The state after a manual change.
    struct SetReply {
        now: i64,
        epoch: u64,
        /// End of the cooldown; 0 = open.
        till: i64,
    }

    /// The learned rate after a manual change.
    struct RateReply {
        now: i64,
        learned: KnownRate,
    }

    /// The store's memory of a rule.
    struct MemoryReply {
        memory: i64,
    }

    /// The slots of a member.
    struct SlotsReply {
        now: i64,
        slots: u32,
        /// Whether others are short.
        contended: bool,
        /// When to ask again; 0 = the member has all the slots that it wants.
        come_back: i64,
        /// The memory of the rule.
        memory: i64,
    }

    /// The cooldown of a scope.
    struct PeekReply {
        now: i64,
        epoch: u64,
        /// End of the cooldown; 0 = open.
        till: i64,
        /// End of the probe's lease; 0 = no probe is in flight.
        probe_till: i64,
        streak: f64,
        /// The streak that tripped last.
        peak: f64,
        cause: String,
        /// Letters of the blocks that tripped last.
        blamed: String,
        /// The rate that the site names, in tokens per second; 0 = none.
        named: f64,
    }

    /// What the store knows of a scope.
    struct SurveyReply {
        cooldown: PeekReply,
        learned: KnownRate,
        /// Members that wait for the bucket.
        waiting: u64,
    }

    /// When the next request of a scope could be sent.
    struct WhenReply {
        now: i64,
        epoch: u64,
        phase: Phase,
        /// End of the cooldown, or of the probe's lease.
        ends: i64,
        /// The store grants nothing of the rule before this moment.
        hold: i64,
        /// The next ticket.
        moment: i64,
        /// The next ticket by the rate alone.
        by_rate: i64,
        /// The next ticket of the user.
        user_moment: i64,
        /// Slots that others leave.
        slots_left: u32,
        rate: f64,
        /// Members that wait for the bucket.
        members: u32,
    }

    /// The running members.
    struct MembersReply {
        count: u32,
        /// Whether this one was unknown.
        is_new: bool,
        /// The schema of the others if it differs; else empty.
        other_schema: String,
    }

    /// A member and its figures.
    struct RosterReply {
        member: String,
        /// How long ago it was last heard from.
        ago: i64,
        /// JSON.
        figures: String,
    }
}

impl Read for Phase {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        values.word(&[
            ("open", Self::Open),
            ("cooling", Self::Cooling),
            ("probing", Self::Probing),
            ("due", Self::Due),
            ("probe", Self::Probe),
        ])
    }
}

impl Read for Change {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        values.word(&[
            ("none", Self::None),
            ("stale", Self::Stale),
            ("streak", Self::Streak),
            ("tripped", Self::Tripped),
            ("opened", Self::Opened),
            ("probe_lost", Self::ProbeLost),
        ])
    }
}

impl Read for RateReason {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        let at = usize::try_from(values.whole()?).ok();
        at.and_then(|at| Self::ALL.get(at).copied()).ok_or_else(|| values.bad())
    }
}

/// `requests window ban trips`; empty = none.
impl Read for Option<NamedWall> {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        let text = values.text()?;
        if text.is_empty() { Ok(None) } else { named(&text).map(Some).ok_or_else(|| values.bad()) }
    }
}

fn named(text: &str) -> Option<NamedWall> {
    let mut words = text.split(' ');
    let requests = words.next()?.parse().ok().filter(|requests: &f64| requests.is_finite())?;
    let mut micros = || sane(words.next()?.parse().ok()?);
    let (window, ban) = (micros()?, micros()?);
    Some(NamedWall { requests, window, ban, trips: words.next()?.parse().ok()? })
}

/// `length:start:taken,...`
impl Read for Vec<Window> {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        let text = values.text()?;
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| window(part).ok_or_else(|| values.bad())).collect()
    }
}

fn window(text: &str) -> Option<Window> {
    let (length, rest) = text.split_once(':')?;
    let (start, taken) = rest.split_once(':')?;
    let length = length.parse().ok().and_then(sane).filter(|length| *length > 0)?;
    // A window that has not begun lies in the far past.
    let start: i64 = start.parse().ok()?;
    let start = sane(start).or_else(|| sane(start.checked_sub(LONG_AGO)?).map(|_| start))?;
    Some(Window { length, start, taken: taken.parse().ok()? })
}

/// The moments of tickets. A negative number -n stands for n more tickets of the moment before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Tickets(pub(in crate::store) Vec<i64>);

impl Read for Tickets {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        let Value::Array(list) = values.next()? else { return Err(values.bad()) };
        let mut tickets = Vec::with_capacity(list.len());
        for value in list {
            let micros = value.as_i64().and_then(sane).ok_or_else(|| values.bad())?;
            if micros >= 0 {
                tickets.push(micros);
                continue;
            }
            let same = tickets.last().copied().ok_or_else(|| values.bad())?;
            let more = usize::try_from(-micros).map_err(|_| values.bad())?;
            if tickets.len() + more > BATCH as usize {
                return Err(values.bad());
            }
            tickets.resize(tickets.len() + more, same);
        }
        Ok(Self(tickets))
    }
}

/// A list without its invalid entries.
#[derive(Debug, Clone)]
pub(in crate::store) struct Tolerant<R>(pub(in crate::store) Vec<R>);

impl<R: Read> Read for Tolerant<R> {
    fn fields(name: &str, to: &mut Vec<Field>) {
        R::fields(name, to);
    }

    fn read(values: &mut Values) -> Result<Self, BadReply> {
        let list = values.next()?;
        Self::reply("", list)
    }

    fn reply(script: &'static str, reply: Value) -> Result<Self, BadReply> {
        let entries = reply.into_array().into_iter();
        Ok(Self(entries.filter_map(|entry| R::reply(script, entry).ok()).collect()))
    }
}

impl From<ReportReply> for Reported {
    fn from(reply: ReportReply) -> Self {
        let ReportReply { now, change, epoch, till, streak, length, cause, blamed } = reply;
        let (cause, blocks) = (cause.parse().ok(), Blocks::of_letters(&blamed));
        Self { now, change, epoch, until: till, streak, length, cause, blocks }
    }
}

impl From<SetReply> for Reported {
    fn from(SetReply { now, epoch, till }: SetReply) -> Self {
        let length = if till > 0 { till - now } else { 0 };
        Self { until: till, length, ..Self::unchanged(now, epoch) }
    }
}

impl From<PeekReply> for Peeked {
    fn from(reply: PeekReply) -> Self {
        let PeekReply { now, epoch, till, probe_till, streak, peak, cause, blamed, named } = reply;
        Self {
            now,
            epoch,
            until: till,
            probe_until: probe_till,
            streak,
            peak,
            cause: cause.parse().ok(),
            by: culprit(&blamed),
            blocks: Blocks::of_letters(&blamed),
            named: Some(named).filter(|rate| *rate > 0.0),
        }
    }
}

impl From<WhenReply> for Forecast {
    fn from(reply: WhenReply) -> Self {
        let WhenReply { now, epoch, hold, moment, by_rate, user_moment, rate, members, .. } = reply;
        let phase = match reply.phase {
            Phase::Open => cooldown::Phase::Open,
            Phase::Cooling => cooldown::Phase::Cooling(reply.ends),
            Phase::Probing => cooldown::Phase::Probing(reply.ends),
            Phase::Due | Phase::Probe => cooldown::Phase::Due,
        };
        let slots_left = reply.slots_left;
        let moments = Reading {
            now,
            epoch,
            phase,
            hold,
            moment,
            by_rate,
            user_moment,
            slots_left,
            rate,
            members,
        };
        moments.into()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fields::LATEST, *};

    /// A script's reply with these tickets.
    fn tickets(said: &[i64]) -> Result<Vec<i64>, BadReply> {
        let values: Vec<Value> = said.iter().map(|number| Value::Integer(*number)).collect();
        Tickets::reply("take", Value::Array(vec![Value::Array(values)])).map(|tickets| tickets.0)
    }

    #[test]
    fn tickets_of_one_moment_are_counted_and_never_more_than_a_call_grants() {
        assert_eq!(tickets(&[]), Ok(vec![]));
        assert_eq!(tickets(&[7, 9]), Ok(vec![7, 9]));
        assert_eq!(tickets(&[7, -2, 9, -1]), Ok(vec![7, 7, 7, 9, 9]));
        assert_eq!(tickets(&[7, -999]).map(|all| all.len()), Ok(1_000));
        for wrong in [&[-1][..], &[7, -1_000], &[7, -500, 8, -500], &[7, -LATEST], &[7, i64::MIN]] {
            assert!(tickets(wrong).is_err(), "{wrong:?}");
        }
    }
}
