//! A member's decisions in one scope without its store. The member uses its share of what was left, and records what it
//! takes, to report it to the store later.

use std::{collections::VecDeque, time::Duration};

use crate::{
    limiter::{
        bucket::{HORIZON, LONG_AGO, Window},
        policy::{Limits, Quota},
    },
    runtime::clock::{self, Instant},
    store::{
        Granted,
        memory::{LocalState, Memory},
    },
};

/// The windows of a scope's quotas as last known.
#[derive(Debug, Clone)]
pub(in crate::store) struct Windows {
    /// When they were known, on the store's clock.
    pub(in crate::store) as_of: i64,
    /// The same moment, on this process's clock.
    pub(in crate::store) heard: Instant,
    /// One per length.
    pub(in crate::store) each: Vec<Window>,
}

/// The decisions in one scope without the store.
#[derive(Debug)]
pub(in crate::store) struct LocalScope {
    /// When the local decisions began, on the clock of the member's own store. The store identifies them by this time.
    began: i64,
    place: LocalState,
    fleet: Fleet,
    /// The fleet's limits, which this member takes a share of.
    whole: Limits,
    parts: Vec<Part>,
    /// Tokens of each ticket.
    cost: u64,
    /// Tickets handed out ahead, ascending.
    out: VecDeque<i64>,
    /// Tokens taken so far.
    taken: u64,
}

/// A member's knowledge of a scope when its store fell silent.
#[derive(Debug)]
pub(super) struct BeforeOutage {
    /// The windows of its quotas as last known.
    pub(super) heard: Option<Windows>,
    /// When this member's latest ticket is due, in microseconds from now.
    pub(super) due: Option<i64>,
    /// How long the store has been silent. No member took anything from it in this time.
    pub(super) silent: Duration,
    /// Tokens already taken without the store, under other quotas.
    pub(super) taken: u64,
}

/// A member's share of one quota.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    /// Tokens in each future window.
    limit: u64,
    /// The start of the current window.
    start: i64,
    /// The part of `limit` that is used up in the current window.
    used: u64,
    /// Whether all members share this window.
    common: bool,
}

/// A member's knowledge of its fleet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fleet {
    pub(super) members: u32,
    pub(super) share: f64,
}

impl LocalScope {
    /// Starts local decisions in a scope of the member's own store.
    pub(super) fn begin(
        (here, place): (&Memory, &LocalState),
        whole: &Limits,
        fleet: Fleet,
        before: &BeforeOutage,
    ) -> Self {
        let now = here.now();
        let lost = now - clock::micros(before.silent);
        let mut parts = parts(whole, before.heard.as_ref(), (now, lost), fleet);
        for part in parts.iter_mut().filter(|_| before.taken > 0) {
            part.used = part.limit.min(part.used + before.taken);
            part.common = false;
        }
        let local = Self {
            began: now,
            place: place.clone(),
            fleet,
            whole: whole.clone(),
            cost: u64::from(whole.cost),
            out: VecDeque::new(),
            taken: before.taken,
            parts,
        };
        let used = |(part, quota): (&Part, &Quota)| Window {
            length: clock::micros(quota.window),
            start: part.start,
            taken: part.used,
        };
        let windows = local.parts.iter().zip(&whole.quotas).map(used).collect();
        let limits = local.limits(whole);
        // Nothing is sent before a window that began with a ticket ahead, because the previous window was full.
        let starts = local.parts.iter().filter(|part| part.common).map(|part| part.start);
        let turn = last_turn(whole, fleet.share, before.due, lost - now, fastrand::f64());
        let from = starts.fold(now + turn, i64::max);
        here.begin(place, &limits, from, windows, fleet.members > 1);
        local
    }

    /// The limits of this member.
    pub(super) fn limits(&self, whole: &Limits) -> Limits {
        let mut limits = scaled(whole, self.fleet.share);
        for (quota, part) in limits.quotas.iter_mut().zip(&self.parts) {
            quota.tokens = part.limit;
        }
        limits
    }

    /// Whether the rule still has the quotas of the start.
    pub(super) fn is_of(&self, whole: &Limits) -> bool {
        self.whole.quotas == whole.quotas
    }

    /// How long from now until one of its windows ends. Tickets are handed out ahead only until then, because the
    /// returning store knows one window of a quota, not the next one.
    pub(super) fn ends_in(&self, now: i64) -> i64 {
        let left = |(part, quota): (&Part, &Quota)| {
            let length = clock::micros(quota.window);
            length - (now - part.start.max(0)).rem_euclid(length)
        };
        self.parts.iter().zip(&self.whole.quotas).map(left).min().unwrap_or(i64::MAX)
    }

    /// When to check again if the share of a quota is less than one request costs.
    pub(super) fn never(&self, now: i64) -> Option<i64> {
        let too_small = |(part, quota): (&Part, &Quota)| {
            (part.limit < self.cost).then(|| now + clock::micros(quota.window))
        };
        self.parts.iter().zip(&self.whole.quotas).filter_map(too_small).max()
    }

    /// Records tickets handed out.
    pub(super) fn granted(&mut self, granted: &Granted) {
        self.out.extend(&granted.tickets);
        self.taken += granted.tickets.len() as u64 * self.cost;
        while self.out.front().is_some_and(|due| *due <= granted.now) {
            self.out.pop_front();
        }
    }

    /// Tokens taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The report for the returning store (`lua/lib/away.lua`).
    pub(super) fn report(&self, here: &Memory) -> String {
        let now = here.now();
        let ahead = self.out.iter().filter(|due| **due > now).count() as u64 * self.cost;
        let windows = here.windows(&self.place);
        let own = |at: usize, part: &Part| {
            let length = clock::micros(self.whole.quotas[at].window);
            let window = windows.iter().find(|window| window.length == length).copied();
            let window = window.unwrap_or(Window { length, start: now, taken: 0 });
            let (start, taken) = part.taken(window, now, self.taken);
            format!("{length}:{start}:{taken}")
        };
        let taken: Vec<_> = self.parts.iter().enumerate().map(|(at, part)| own(at, part)).collect();
        away(self.began, now - self.began, self.fleet, ahead, &taken.join(","))
    }
}

/// When a member that continues from its latest ticket at the pace of its share has its turn. Members' turns do not
/// coincide, because their tickets do not. A member without a ticket draws its place among the others with `draw` from
/// [0, 1). All times are microseconds from now: `due` of that ticket (negative: past), `lost` of the loss of the store,
/// whose bucket may have been empty.
pub(super) fn last_turn(whole: &Limits, share: f64, due: Option<i64>, lost: i64, draw: f64) -> i64 {
    let Some(rate) = whole.rate.filter(|_| due.is_none_or(|due| due < 0)) else {
        return due.map_or(0, |due| due.max(0));
    };
    let token = f64::from(whole.cost) / rate * 1e6;
    let pace = clock::whole((token / share).ceil()).max(1);
    let earliest = (lost + clock::whole(token.ceil())).max(0);
    let others = clock::exact(pace) - token;
    let place =
        due.map_or_else(|| clock::whole(draw * others), |due| (due - earliest).rem_euclid(pace));
    earliest + place - pace
}

/// The report for a returning store if the member decided nothing without it.
pub(super) fn idle(here: &Memory, gone: Duration, fleet: Fleet) -> String {
    let gone = clock::micros(gone);
    away(here.now() - gone, gone, fleet, 0, "")
}

/// A time without the store, as `rejoin` of `lua/lib/away.lua` reads it.
fn away(since: i64, gone: i64, fleet: Fleet, ahead: u64, taken: &str) -> String {
    let Fleet { members, share } = fleet;
    format!("{since}:{gone}:{members}:{share}:{ahead};{taken}")
}

impl Part {
    /// Start of this member's latest window, and the tokens that it took in it without the store. A window of its own
    /// has no start.
    fn taken(&self, window: Window, now: i64, in_all: u64) -> (i64, u64) {
        if !self.common {
            // Other members have other windows, so tokens of the previous window may count in theirs.
            return (0, in_all.min(2 * self.limit));
        }
        let before = if window.start == self.start { self.used } else { 0 };
        let over = window.start + window.length <= now;
        (window.start.max(0), if over { 0 } else { window.taken.saturating_sub(before) })
    }
}

/// A member's part of each quota.
fn parts(
    whole: &Limits,
    heard: Option<&Windows>,
    (now, lost): (i64, i64),
    fleet: Fleet,
) -> Vec<Part> {
    let one = |quota: &Quota| {
        let window = heard.and_then(|heard| {
            let length = clock::micros(quota.window);
            let window = heard.each.iter().find(|window| window.length == length)?;
            let age = clock::micros(heard.heard.elapsed());
            Some((Window { start: now - age - (heard.as_of - window.start), ..*window }, now - age))
        });
        one_part(whole, quota, window, (now, lost), fleet)
    };
    whole.quotas.iter().map(one).collect()
}

/// A member's share of a quota. `heard` is the window that it last knew, and when. The store has been away since
/// `lost`.
fn one_part(
    whole: &Limits,
    quota: &Quota,
    heard: Option<(Window, i64)>,
    (now, lost): (i64, i64),
    Fleet { members, share }: Fleet,
) -> Part {
    let length = clock::micros(quota.window);
    let limit = part(quota.tokens, share.min(1.0));
    let running = heard.filter(|(window, _)| window.start + length > now);
    if members < 2 {
        let (start, used) =
            running.map_or((LONG_AGO, 0), |(window, _)| (window.start, window.taken));
        return Part { limit, start, used: used.min(limit), common: true };
    }
    let left = |taken: u64, since: i64| {
        let others = others_took(whole, lost.saturating_sub(since).max(0), members);
        part(quota.tokens.saturating_sub(taken).saturating_sub(others), share.min(1.0))
    };
    if let Some((window, at)) = running {
        let used = limit.saturating_sub(left(window.taken, at));
        return Part { limit, start: window.start, used, common: true };
    }
    // A window may have begun unnoticed since the end of the last one or this member's last call. Only the other
    // members know when. This member's windows overlap two of theirs, so each gets half of the share.
    let since = heard.map_or(now - length, |(window, at)| at.max(window.start + length));
    let limit = limit / 2;
    let used = limit.saturating_sub(left(0, since.max(now - length)));
    Part { limit, start: now, used, common: false }
}

/// The most tokens that others can have taken in this time, including tickets ahead.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn others_took(whole: &Limits, micros: i64, members: u32) -> u64 {
    let Some(rate) = whole.rate else { return u64::MAX };
    let flowed = rate * clock::exact(micros.saturating_add(HORIZON)) / 1e6;
    let most = f64::from(whole.burst) + flowed + f64::from(whole.cost) * f64::from(members);
    most.ceil().clamp(0.0, 1e18) as u64
}

/// The limits with the current learned rate, if known, instead of the ceiling. Nothing is learned: one member's
/// verdicts are too few, and the others would not get the result.
pub(super) fn fixed(limits: &Limits, known: f64) -> Limits {
    let in_force = |ceiling: f64| match &limits.learn {
        None => ceiling,
        Some(_) if known > 0.0 => known.min(ceiling),
        Some(learn) => learn.start.min(ceiling),
    };
    Limits { rate: limits.rate.map(in_force), learn: None, ..limits.clone() }
}

/// A share of the limits: at least one request of rate and burst, and the given share of quotas.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn scaled(limits: &Limits, share: f64) -> Limits {
    let burst = part(u64::from(limits.burst), share) as u32;
    let quota = |quota: &Quota| Quota { tokens: part(quota.tokens, share), window: quota.window };
    Limits {
        rate: limits.rate.map(|rate| rate * share),
        burst: burst.max(limits.cost),
        quotas: limits.quotas.iter().map(quota).collect(),
        cost: limits.cost,
        learn: None,
    }
}

/// A share in whole tokens.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn part(whole: u64, share: f64) -> u64 {
    (whole as f64 * share).floor() as u64
}
