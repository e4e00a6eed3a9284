//! The fleet for `tidegate status` and `tidegate top`, read from a member or directly from its
//! store.

use std::time::Duration;

use http::Method;

use super::{
    Global, Usage,
    client::{Admin, Token},
    cooldown::span,
    out::{Out, Style},
    table::{cut, draw, per_time},
};
use crate::{
    admin::fleet_view,
    config::Loaded,
    observability::{
        event::clean,
        status::{
            BlockedMember, FleetScope, FleetStatus, MemberStatus, Responder, ScopeFacts,
            ScopeState, StoreStatus, Summary,
        },
    },
    rules::settings::{RedisSettings, StoreSettings},
    store::survey,
};

/// The source of the fleet's status.
#[derive(Debug)]
pub(super) enum Source {
    /// One of its members.
    Member(Admin),
    /// Its store, which `--store` names.
    Store(Box<FromStore>),
}

/// A store that is read without a member.
#[derive(Debug)]
pub(super) struct FromStore {
    loaded: Loaded,
    settings: RedisSettings,
    runtime: tokio::runtime::Runtime,
}

impl Source {
    /// The store if `--store` is given without `--admin`; otherwise a member.
    pub(super) fn new(global: &Global, token: &Token) -> anyhow::Result<Self> {
        if global.store.is_none() || global.admin.is_some() {
            return Ok(Self::Member(Admin::new(global, token)?));
        }
        let loaded = global.load()?;
        let StoreSettings::Redis(settings) = loaded.settings.store.clone() else {
            return Err(Usage(
                "`--store memory` has no fleet to show; without `--store` a member is asked".into(),
            )
            .into());
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self::Store(Box::new(FromStore { loaded, settings, runtime })))
    }

    /// The current fleet, with at most `scopes` scopes.
    pub(super) fn read(&self, scopes: usize) -> anyhow::Result<FleetStatus> {
        match self {
            Self::Member(admin) => {
                let path = format!("/api/v1/fleet?fresh=1&limit={scopes}");
                Ok(serde_json::from_value(admin.ask(Method::GET, &path, None)?)?)
            }
            Self::Store(store) => {
                let survey = store.runtime.block_on(survey(&store.settings))?;
                let mut fleet = fleet_view::of_store(&survey, &store.loaded.rules);
                fleet.scopes.truncate(scopes);
                let (kind, up, reached) = ("redis".to_owned(), true, true);
                fleet.responder.store = StoreStatus { kind, up, reached, ..StoreStatus::default() };
                fleet.responder.ready = true;
                Ok(fleet)
            }
        }
    }
}

/// The line about an invalid rule file.
pub(super) const REJECTED: &str =
    "the rule file was rejected; the previous one is in force (`tidegate check`)";

/// Whether no operator is needed: exit code 0.
pub(super) fn is_healthy(fleet: &FleetStatus) -> bool {
    fleet.responder.ready && fleet.responder.store.up && fleet.summary.cooling == 0
}

/// The header: a summary in a few lines.
pub(super) fn head(fleet: &FleetStatus, out: &Out) -> Vec<String> {
    let Summary {
        scopes,
        cooling,
        held,
        requests_per_s,
        blocks_per_min,
        pages_per_min,
        members_up,
    } = &fleet.summary;
    let Responder { store, ready, config, .. } = &fleet.responder;
    let state = match (store.up, ready, cooling) {
        (false, ..) => out.paint(Style::Bad, "its store is away"),
        (true, false, _) => out.paint(Style::Bad, "not ready"),
        (true, true, 0) => out.paint(Style::Good, "ready"),
        (true, true, _) => out.paint(Style::Bad, format!("{cooling} cooling")),
    };
    let more = if fleet.more { " and more" } else { "" };
    let mut lines = vec![format!(
        "{} {state}  members {members_up}  scopes {scopes}{more}  held {held}  {requests_per_s:.0} requests/s  \
         {pages_per_min} pages/min  {blocks_per_min} blocks/min  store {}",
        out.paint(Style::Bold, "fleet"),
        clean(&store.kind),
    )];
    if let Some(trouble) = &store.trouble {
        let what =
            format!("the store {} is away ({}): {}", store.server, trouble.kind, trouble.reason);
        lines.push(out.paint(Style::Bad, clean(&what)));
        lines.push(clean(&format!("{}; meanwhile {}", trouble.advice, trouble.meanwhile)));
    }
    if !fleet.whole {
        let why = fleet.unread.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let what = format!("only what this member knows{why}");
        lines.push(out.paint(Style::Warn, clean(&what)));
    }
    if !config.problems.is_empty() {
        lines.push(out.paint(Style::Bad, REJECTED));
    }
    lines
}

/// The members as a table.
pub(super) fn members(fleet: &FleetStatus, out: &Out) -> Vec<String> {
    let columns = ["member", "address", "state", "heard", "requests/s", "held", "version"];
    let rows: Vec<_> = fleet.members.iter().map(member).collect();
    let styles = fleet.members.iter().map(|member| match member_state(member).0 {
        true => Style::Plain,
        false => Style::Bad,
    });
    draw(columns, &rows, styles, &[0, 1, 2, 6], out)
}

fn member_state(member: &MemberStatus) -> (bool, &'static str) {
    match (member.up, member.figures.store_up, member.figures.ready) {
        (false, ..) => (false, "not heard"),
        (true, false, _) => (false, "store away"),
        (true, true, false) => (false, "not ready"),
        (true, true, true) => (true, "up"),
    }
}

fn member(member: &MemberStatus) -> [String; 7] {
    [
        cut(&clean(&member.name)),
        cut(&clean(&member.figures.address)),
        member_state(member).1.to_owned(),
        format!("{} ago", span(Duration::from_millis(member.heard_ms))),
        format!("{:.0}", member.figures.requests_per_s),
        member.figures.held.to_string(),
        clean(&member.figures.version),
    ]
}

/// The scopes as a table.
pub(super) fn scopes(fleet: &FleetStatus, out: &Out) -> Vec<String> {
    let columns = ["scope", "sent", "rate", "mark", "limit", "held", "streak", "state"];
    let rows: Vec<_> = fleet.scopes.iter().map(scope).collect();
    let styles = fleet.scopes.iter().map(|scope| style(&scope.facts));
    let mut lines = draw(columns, &rows, styles, &[0, 7], out);
    lines.extend(fleet.scopes.iter().filter_map(|scope| {
        let BlockedMember { name, share, others } = scope.blocked_member.as_ref()?;
        let text = format!(
            "{}: member {} gets {:.0} % blocks, the others {:.0} %; is its exit blocked?",
            cut(&clean(&scope.facts.name())),
            cut(&clean(name)),
            share * 100.0,
            others * 100.0,
        );
        Some(out.paint(Style::Warn, text))
    }));
    lines.extend(fleet.scopes.iter().filter_map(|scope| {
        let text = wall_line(&scope.facts)?;
        Some(out.paint(Style::Dim, text))
    }));
    let hidden = fleet.scopes_total.max(fleet.summary.scopes).saturating_sub(fleet.scopes.len());
    if hidden > 0 {
        lines.push(format!("and {hidden} more scopes"));
    }
    lines
}

/// The site's limit by count, if it is known.
pub(super) fn wall_line(facts: &ScopeFacts) -> Option<String> {
    let wall = facts.learned.as_ref()?.wall?;
    Some(format!("{}: learned: {wall}", cut(&clean(&facts.name()))))
}

/// The style of a scope's row.
pub(super) fn style(facts: &ScopeFacts) -> Style {
    match facts.state {
        ScopeState::Cooling => Style::Bad,
        ScopeState::Probing | ScopeState::Ramping => Style::Warn,
        ScopeState::Open if facts.streak > 0.0 => Style::Warn,
        ScopeState::Open | ScopeState::OutsideHours => Style::Plain,
    }
}

fn scope(scope: &FleetScope) -> [String; 8] {
    let [name, rest @ ..] = cells(&scope.facts);
    let [rate, mark, limit, held, streak, state] = rest;
    [name, format!("{:.0}/s", scope.sent_per_s), rate, mark, limit, held, streak, state]
}

/// The cells that the fleet's table and a member's share: name, rate, mark, limit, held, streak and
/// state.
pub(super) fn cells(facts: &ScopeFacts) -> [String; 7] {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), per_time);
    let mut state = facts.state.as_str().to_owned();
    if facts.state != ScopeState::Open {
        state.push_str(&format!(" {}", span(Duration::from_millis(facts.remaining_ms))));
    }
    if let Some(most) = facts.parallel {
        state.push_str(&format!(", {} of {most} under way", facts.under_way));
    }
    if facts.observe {
        state.push_str(" (observe)");
    }
    [
        cut(&clean(&facts.name())),
        rate(facts.rate_current),
        match (&facts.learned, facts.site_rate) {
            (_, Some(site)) => format!("site {}", per_time(site)),
            (Some(learned), None) if learned.frozen => "frozen".to_owned(),
            (learned, None) => rate(learned.as_ref().and_then(|learned| learned.mark)),
        },
        if facts.rate_auto { "auto".to_owned() } else { rate(facts.rate_limit) },
        facts.held.to_string(),
        facts.after.map_or_else(|| "-".to_owned(), |after| format!("{}/{after}", facts.streak)),
        state,
    ]
}
