//! `tidegate status --store URL`: a whole fleet as its store knows it, without asking any member.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Global, Outcome, Usage,
    cooldown::span,
    out::{Out, Style},
    table::{cut, draw},
};
use crate::{
    config::Loaded,
    event::clean,
    rules::Rule,
    settings::{RedisSettings, StoreSettings},
    status::{ScopeState, scope_name},
    store::{Survey, Surveyed, survey},
};

/// Rows of the table, as many as the admin port shows; `--json` has all.
const MOST_ROWS: usize = 200;

/// The fleet that `--store` names.
#[derive(Debug)]
pub(super) struct Fleet {
    loaded: Loaded,
    settings: RedisSettings,
    runtime: tokio::runtime::Runtime,
}

/// One scope, with what the rule file says of it.
struct Row {
    name: String,
    limit: Option<f64>,
    after: Option<f64>,
    state: ScopeState,
    remaining: Duration,
    seen: Surveyed,
}

impl Fleet {
    /// The fleet, where `--store` names one and `--admin` no member of it.
    pub(super) fn named(global: &Global) -> anyhow::Result<Option<Self>> {
        if global.store.is_none() || global.admin.is_some() {
            return Ok(None);
        }
        let loaded = global.load()?;
        let StoreSettings::Redis(settings) = loaded.settings.store.clone() else {
            return Err(Usage(
                "`--store memory` has no fleet to show; without `--store` one member is asked"
                    .into(),
            )
            .into());
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Some(Self { loaded, settings, runtime }))
    }

    /// Prints it once.
    pub(super) fn print(&self, as_json: bool, out: &Out) -> anyhow::Result<Outcome> {
        let survey = self.runtime.block_on(survey(&self.settings))?;
        let rows = self.rows(&survey);
        if as_json {
            out.json(&self.json(&survey, &rows))?;
        } else {
            out.raw(table(&survey, &rows, out).as_bytes())?;
        }
        let closed = rows.iter().any(Row::is_closed);
        Ok(if closed { Outcome::NotFine } else { Outcome::Fine })
    }

    /// The table, for `tidegate top`.
    pub(super) fn table(&self, out: &Out) -> anyhow::Result<String> {
        let survey = self.runtime.block_on(survey(&self.settings))?;
        Ok(table(&survey, &self.rows(&survey), out))
    }

    /// What stands still first, then by name.
    fn rows(&self, survey: &Survey) -> Vec<Row> {
        let rules = self.loaded.rules.as_slice();
        let mut rows: Vec<_> = survey
            .scopes
            .iter()
            .map(|seen| {
                row(seen, rules.iter().find(|rule| *rule.name == *seen.rule).map(AsRef::as_ref))
            })
            .collect();
        rows.sort_by(|a, b| (!a.is_closed(), &a.name).cmp(&(!b.is_closed(), &b.name)));
        rows
    }

    fn json(&self, survey: &Survey, rows: &[Row]) -> Value {
        let scopes: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "rule": row.seen.rule, "key": row.seen.key, "state": row.state.as_str(),
                    "remaining_ms": u64::try_from(row.remaining.as_millis()).unwrap_or(u64::MAX),
                    "streak": row.seen.cooldown.streak, "after": row.after,
                    "epoch": row.seen.cooldown.epoch, "rate_limit": row.limit,
                    "rate_learned": row.seen.rate, "members_waiting": row.seen.waiting,
                })
            })
            .collect();
        json!({
            "prefix": self.settings.prefix, "members": survey.members, "scopes": scopes,
            "more": survey.more,
        })
    }
}

impl Row {
    fn is_closed(&self) -> bool {
        matches!(self.state, ScopeState::Cooling | ScopeState::Probing)
    }
}

fn row(seen: &Surveyed, rule: Option<&Rule>) -> Row {
    let policy = rule.and_then(|rule| rule.cooldown.as_ref());
    let cooldown = &seen.cooldown;
    // Once it is over a probe is due, or out; without one the scope is open.
    let state = match cooldown.until {
        0 => ScopeState::Open,
        until if until > cooldown.now => ScopeState::Cooling,
        _ if policy.is_none_or(|policy| policy.probe) => ScopeState::Probing,
        _ => ScopeState::Open,
    };
    let left = u64::try_from(cooldown.until - cooldown.now).unwrap_or(0);
    Row {
        name: scope_name(&seen.rule, &seen.key),
        limit: rule.and_then(|rule| rule.limits.rate),
        after: policy.map(|policy| policy.after),
        state,
        remaining: Duration::from_micros(left),
        seen: seen.clone(),
    }
}

fn table(survey: &Survey, rows: &[Row], out: &Out) -> String {
    let mut lines = vec![format!(
        "{}  members {}  scopes {}{}",
        out.paint(Style::Bold, "fleet"),
        survey.members.len(),
        rows.len(),
        if survey.more { " and more" } else { "" },
    )];
    let columns = ["scope", "learned", "limit", "waiting", "streak", "state"];
    let cells: Vec<_> = rows.iter().take(MOST_ROWS).map(cells).collect();
    let styles = rows.iter().map(|row| match row.state {
        ScopeState::Cooling => Style::Bad,
        ScopeState::Probing => Style::Warn,
        _ if row.seen.cooldown.streak > 0.0 => Style::Warn,
        _ => Style::Plain,
    });
    lines.extend(draw(columns, &cells, styles, &[0, 5], out));
    if rows.len() > MOST_ROWS {
        lines.push(format!("and {} more scopes", rows.len() - MOST_ROWS));
    }
    lines.join("\n") + "\n"
}

fn cells(row: &Row) -> [String; 6] {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}/s"));
    let streak = &row.seen.cooldown.streak;
    [
        cut(&clean(&row.name)),
        rate(row.seen.rate),
        rate(row.limit),
        row.seen.waiting.to_string(),
        row.after.map_or_else(|| streak.to_string(), |after| format!("{streak}/{after}")),
        match row.state {
            ScopeState::Cooling => format!("cooling {}", span(row.remaining)),
            state => state.as_str().to_owned(),
        },
    ]
}
