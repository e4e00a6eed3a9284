//! Combines the view of the fleet: the store's data, the figures of the members, and the rule file.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use super::blocked;
use crate::{
    limiter::cooldown::Cause,
    observability::{
        event::clean,
        status::{
            FleetScope, FleetStatus, LearnedStatus, MemberFigures, MemberStatus, RateChange,
            ScopeFacts, ScopeState, ScopeStatus, Summary, TripStatus,
        },
    },
    rules::{Mode, Rule, RuleSet},
    store::{Announced, Survey, Surveyed},
};

/// A member is down after this long without a heartbeat: more than three missed ones.
pub const UP: Duration = Duration::from_secs(4);

/// The fleet from the store's view, with this member's rules. The data that only a member knows
/// about itself is empty.
#[must_use]
pub fn of_store(survey: &Survey, rules: &RuleSet) -> FleetStatus {
    let members: Vec<_> = survey.members.iter().map(member).collect();
    let scope = |seen: &Surveyed| {
        let of = |rule: &&Arc<Rule>| *rule.name == *seen.rule;
        scope_of(seen, rules.as_slice().iter().find(of).map(AsRef::as_ref))
    };
    let mut scopes: Vec<_> = survey.scopes.iter().map(scope).collect();
    let by_name: BTreeMap<_, _> =
        scopes.iter().enumerate().map(|(at, scope)| (scope.facts.name(), at)).collect();
    let mut changes: BTreeMap<&String, &RateChange> = BTreeMap::new();
    for figures in members.iter().map(|member| &member.figures) {
        for (name, share) in &figures.scopes {
            let Some(scope) = by_name.get(name).map(|at| &mut scopes[*at]) else { continue };
            scope.facts.held += share.held;
            scope.facts.under_way += share.under_way;
            scope.sent_per_s += share.per_s;
        }
        for (name, trip) in &figures.trips {
            let Some(scope) = by_name.get(name).map(|at| &mut scopes[*at]) else { continue };
            if scope.trip.as_ref().is_none_or(|known| known.at_ms < trip.at_ms) {
                scope.trip = Some(trip.clone());
            }
        }
        for (name, change) in &figures.rates {
            changes
                .entry(name)
                .and_modify(|known| {
                    if known.at_ms < change.at_ms {
                        *known = change;
                    }
                })
                .or_insert(change);
        }
    }
    for (name, change) in changes {
        if let Some(scope) = by_name.get(name).map(|at| &mut scopes[*at]) {
            sign(scope.facts.learned.as_mut(), change);
        }
    }
    for (name, member) in blocked::members(&members) {
        if let Some(scope) = by_name.get(name).map(|at| &mut scopes[*at]) {
            scope.blocked_member = Some(member);
        }
    }
    finished(FleetStatus { whole: true, members, scopes, more: survey.more, ..empty(rules) })
}

/// The fleet from one member's view: its own scopes, and itself.
#[must_use]
pub fn of_member(
    scopes: &[ScopeStatus],
    member: MemberStatus,
    alone: bool,
    rules: &RuleSet,
) -> FleetStatus {
    let scopes = scopes.iter().map(|scope| own_scope(scope, &member.figures)).collect();
    finished(FleetStatus { whole: alone, members: vec![member], scopes, ..empty(rules) })
}

fn empty(rules: &RuleSet) -> FleetStatus {
    let rules = rules.as_slice().iter().map(|rule| rule.name.to_string()).collect();
    FleetStatus { rules, ..FleetStatus::default() }
}

/// Adds up and sorts.
fn finished(mut fleet: FleetStatus) -> FleetStatus {
    let up = || fleet.members.iter().filter(|member| member.up).map(|member| &member.figures);
    fleet.summary = Summary {
        scopes: fleet.scopes.len(),
        cooling: fleet.scopes.iter().filter(|scope| scope.facts.state.is_closed()).count(),
        held: up().map(|figures| figures.held).sum(),
        requests_per_s: up().map(|figures| figures.requests_per_s).sum(),
        blocks_per_min: up().map(|figures| figures.blocks_per_min).sum(),
        pages_per_min: up().map(|figures| figures.pages_per_min).sum(),
        members_up: up().count(),
    };
    fleet.scopes_total = fleet.scopes.len();
    fleet.scopes.sort_by_cached_key(|scope| scope.facts.name());
    fleet.scopes.sort_by(by_urgency);
    fleet
}

/// Puts the most urgent scopes first: cooling, then held, then a streak, then traffic.
fn by_urgency(a: &FleetScope, b: &FleetScope) -> Ordering {
    let rank = |FleetScope { facts, .. }: &FleetScope| {
        (facts.state.is_closed(), facts.held, facts.streak > 0.0)
    };
    rank(b).cmp(&rank(a)).then(b.sent_per_s.total_cmp(&a.sent_per_s))
}

fn member(known: &Announced) -> MemberStatus {
    let figures: MemberFigures = serde_json::from_str(&known.figures).unwrap_or_default();
    MemberStatus {
        name: clean(&known.member),
        up: known.ago <= UP,
        heard_ms: millis(known.ago),
        figures,
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn scope_of(seen: &Surveyed, rule: Option<&Rule>) -> FleetScope {
    let policy = rule.and_then(|rule| rule.cooldown.as_ref());
    let cooldown = &seen.cooldown;
    let probes =
        policy.is_none_or(|policy| policy.probe) && !cooldown.cause.is_some_and(Cause::is_pause);
    // After the cooldown a probe is due or in flight. Without probes, the scope is open.
    let state = match cooldown.until {
        0 => ScopeState::Open,
        until if until > cooldown.now => ScopeState::Cooling,
        _ if probes => ScopeState::Probing,
        _ => ScopeState::Open,
    };
    let left = u64::try_from(cooldown.until - cooldown.now).unwrap_or(0);
    let closed = rule.filter(|rule| rule.mode == Mode::Enforce).and_then(Rule::opens_in);
    let (state, remaining_ms) = match (state, closed) {
        (ScopeState::Open, Some(wait)) => (ScopeState::OutsideHours, millis(wait)),
        _ => (state, left / 1_000),
    };
    let idle = ScopeFacts::idle(&seen.rule, &seen.key, rule);
    let learns = rule.is_some_and(|rule| rule.limits.learn.is_some());
    let learned = LearnedStatus::of(seen.learned).filter(|_| learns);
    let rate = learned.as_ref().map(|learned| learned.rate).or(idle.rate_limit);
    FleetScope {
        facts: ScopeFacts {
            state,
            remaining_ms,
            streak: cooldown.streak,
            rate_current: rate.map(|rate| cooldown.named.map_or(rate, |named| named.min(rate))),
            learned,
            site_rate: cooldown.named,
            epoch: cooldown.epoch,
            ..idle
        },
        sent_per_s: 0.0,
        members_waiting: seen.waiting,
        trip: trip_of(seen),
        blocked_member: None,
    }
}

/// The store's record of the latest trip.
fn trip_of(seen: &Surveyed) -> Option<TripStatus> {
    let cooldown = &seen.cooldown;
    let cause = cooldown.cause.filter(|_| cooldown.until > 0)?;
    let blocks = cooldown.blocks.iter();
    let by = match (cooldown.by, cause) {
        (Some(verdict), _) => verdict.as_str(),
        (None, cause) if cause.is_pause() => cause.as_str(),
        (None, _) => Cause::Manual.as_str(),
    };
    Some(TripStatus {
        by: by.to_owned(),
        cause: cause.as_str().to_owned(),
        blocks: blocks.map(|(verdict, n)| (verdict.as_str().to_owned(), n.into())).collect(),
        streak: cooldown.peak,
        ..TripStatus::default()
    })
}

/// Adds who set a learned rate, while it is a manual one.
fn sign(learned: Option<&mut LearnedStatus>, change: &RateChange) {
    if let Some(learned) = learned.filter(|learned| learned.is_by_hand()) {
        learned.who.clone_from(&change.who);
    }
}

fn own_scope(scope: &ScopeStatus, figures: &MemberFigures) -> FleetScope {
    let mut facts = scope.facts.clone();
    let name = facts.name();
    if let Some(change) = figures.rates.get(&name) {
        sign(facts.learned.as_mut(), change);
    }
    FleetScope {
        sent_per_s: figures.scopes.get(&name).map_or(0.0, |share| share.per_s),
        members_waiting: u64::from(facts.held > 0),
        trip: figures.trips.get(&name).cloned(),
        blocked_member: None,
        facts,
    }
}
