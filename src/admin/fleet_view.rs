//! Combines the view of the fleet: the store's data, the figures of the members, and the rule file.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use super::blocked;
use crate::{
    limiter::cooldown::Cause,
    observability::{
        event::clean,
        status::{
            FleetScope, FleetStatus, LearnedStatus, MemberFigures, MemberStatus, RateChange,
            ScopeState, ScopeStatus, Summary, TripStatus, scope_name,
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
    let scope = |seen| {
        let of = |rule: &&std::sync::Arc<Rule>| *rule.name == *surveyed_rule(seen);
        scope_of(seen, rules.as_slice().iter().find(of).map(AsRef::as_ref))
    };
    let mut scopes: Vec<_> = survey.scopes.iter().map(scope).collect();
    let by_name: BTreeMap<_, _> =
        scopes.iter().enumerate().map(|(at, scope)| (scope.name(), at)).collect();
    let mut changes: BTreeMap<&String, &RateChange> = BTreeMap::new();
    for figures in members.iter().map(|member| &member.figures) {
        for (name, share) in &figures.scopes {
            let Some(scope) = by_name.get(name).map(|at| &mut scopes[*at]) else { continue };
            scope.held += share.held;
            scope.under_way += share.under_way;
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
            sign(scope.learned.as_mut(), change);
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
        cooling: fleet.scopes.iter().filter(|scope| scope.state.is_closed()).count(),
        held: up().map(|figures| figures.held).sum(),
        requests_per_s: up().map(|figures| figures.requests_per_s).sum(),
        blocks_per_min: up().map(|figures| figures.blocks_per_min).sum(),
        pages_per_min: up().map(|figures| figures.pages_per_min).sum(),
        members_up: up().count(),
    };
    fleet.scopes_total = fleet.scopes.len();
    fleet.scopes.sort_by_cached_key(FleetScope::name);
    fleet.scopes.sort_by(by_urgency);
    fleet
}

/// Puts the most urgent scopes first: cooling, then held, then a streak, then traffic.
fn by_urgency(a: &FleetScope, b: &FleetScope) -> Ordering {
    let rank = |scope: &FleetScope| (scope.state.is_closed(), scope.held, scope.streak > 0.0);
    rank(b).cmp(&rank(a)).then(b.sent_per_s.total_cmp(&a.sent_per_s))
}

fn surveyed_rule(seen: &Surveyed) -> &str {
    &seen.rule
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
    // After the cooldown a probe is due or in flight. A rule without probes is open.
    let state = match cooldown.until {
        0 => ScopeState::Open,
        until if until > cooldown.now => ScopeState::Cooling,
        _ if policy.is_none_or(|policy| policy.probe) => ScopeState::Probing,
        _ => ScopeState::Open,
    };
    let left = u64::try_from(cooldown.until - cooldown.now).unwrap_or(0);
    let closed = rule.filter(|rule| rule.mode == Mode::Enforce).and_then(Rule::opens_in);
    let (state, remaining_ms) = match (state, closed) {
        (ScopeState::Open, Some(wait)) => (ScopeState::OutsideHours, millis(wait)),
        _ => (state, left / 1_000),
    };
    let limit = rule.and_then(|rule| rule.limits.rate);
    let learns = rule.is_some_and(|rule| rule.limits.learn.is_some());
    let learned = LearnedStatus::of(seen.learned).filter(|_| learns);
    FleetScope {
        rule: seen.rule.clone(),
        key: seen.key.clone(),
        state,
        remaining_ms,
        streak: cooldown.streak,
        after: policy.map(|policy| policy.after),
        rate_limit: limit,
        rate_auto: rule.is_some_and(|rule| rule.auto_rate),
        rate_current: learned
            .as_ref()
            .map(|learned| learned.rate)
            .or(limit)
            .map(|rate| cooldown.named.map_or(rate, |named| named.min(rate))),
        learned,
        site_rate: cooldown.named,
        held: 0,
        parallel: rule.and_then(|rule| rule.parallel),
        under_way: 0,
        each_user: rule.and_then(|rule| rule.each_user.as_ref()).map(Into::into),
        via: rule.and_then(|rule| rule.via.as_ref()).map(ToString::to_string),
        sent_per_s: 0.0,
        members_waiting: seen.waiting,
        epoch: cooldown.epoch,
        observe: rule.is_some_and(|rule| rule.mode == Mode::Observe),
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
    let name = scope_name(&scope.rule, &scope.key);
    let mut learned = scope.learned.clone();
    if let Some(change) = figures.rates.get(&name) {
        sign(learned.as_mut(), change);
    }
    FleetScope {
        rule: scope.rule.clone(),
        key: scope.key.clone(),
        state: scope.state,
        remaining_ms: scope.remaining_ms,
        streak: scope.streak,
        after: scope.after,
        rate_limit: scope.rate_limit,
        rate_auto: scope.rate_auto,
        rate_current: scope.rate_current,
        learned,
        site_rate: scope.site_rate,
        held: scope.held,
        parallel: scope.parallel,
        under_way: scope.under_way,
        each_user: scope.each_user.clone(),
        via: scope.via.clone(),
        sent_per_s: figures.scopes.get(&name).map_or(0.0, |share| share.per_s),
        members_waiting: u64::from(scope.held > 0),
        epoch: scope.epoch,
        observe: scope.observe,
        trip: figures.trips.get(&name).cloned(),
        blocked_member: None,
    }
}
