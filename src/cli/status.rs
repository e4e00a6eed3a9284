//! `tidegate status`: the fleet as tables, or one member.

use http::Method;
use std::time::Duration;

use super::{
    Global, Outcome,
    client::{Admin, Token},
    cooldown::span,
    fleet::{self, Source},
    out::{Out, Style},
    table::draw,
};
use crate::observability::{
    event::clean,
    status::{Responder, ScopeStatus, Status},
};

/// Scopes in the table; `--json` has all.
const MOST_ROWS: usize = 200;
/// Scopes in the JSON: as many as one read of the store returns.
const ALL: usize = 10_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows the whole fleet as its store knows it, through the member on `admin`.
Exit code 1: a scope of the fleet cools down, the store is away, or the member is not ready.
With `--store URL` (or TIDEGATE_STORE) and without `--admin`, it reads the store directly; no member needs to run.
With `--member`, it shows only what that member knows, with counts of verdicts.

Examples:
  tidegate status
  tidegate status --admin 10.0.0.7:9128 --token \"$TOKEN\"
  tidegate status --member --admin 10.0.0.7:9128
  tidegate status --store redis://10.0.0.5:6379
  tidegate status --json | jq '.scopes[] | select(.state == \"cooling\")'")]
pub(super) struct Args {
    /// Print the reply of the API
    #[arg(long)]
    json: bool,
    /// Show only what the member on `admin` knows
    #[arg(long)]
    member: bool,
    #[command(flatten)]
    token: Token,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    if args.member {
        return member(global, args, out);
    }
    let source = Source::new(global, &args.token)?;
    let seen = source.read(if args.json { ALL } else { MOST_ROWS })?;
    if args.json {
        out.json(&serde_json::to_value(&seen)?)?;
    } else {
        let lines =
            [fleet::head(&seen, out), fleet::members(&seen, out), fleet::scopes(&seen, out)];
        out.raw((lines.concat().join("\n") + "\n").as_bytes())?;
    }
    Ok(if fleet::is_healthy(&seen) { Outcome::Success } else { Outcome::Negative })
}

/// One member's own view.
fn member(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let answer = Admin::new(global, &args.token)?.ask(Method::GET, "/api/v1/status", None)?;
    let status: Status = serde_json::from_value(answer.clone())?;
    if args.json {
        out.json(&answer)?;
    } else {
        out.raw(table(&status, out).as_bytes())?;
    }
    Ok(if is_healthy(&status) { Outcome::Success } else { Outcome::Negative })
}

fn is_healthy(status: &Status) -> bool {
    let closed = |scope: &ScopeStatus| scope.facts.state.is_closed();
    status.responder.ready && status.responder.store.up && !status.scopes.iter().any(closed)
}

/// The table of one member.
fn table(status: &Status, out: &Out) -> String {
    let mut lines = vec![head(status, out)];
    if !status.responder.config.problems.is_empty() {
        lines.push(out.paint(Style::Bad, fleet::REJECTED));
    }
    let columns = ["scope", "rate", "mark", "limit", "held", "streak", "state", "blocks"];
    let rows: Vec<_> = status.scopes.iter().map(row).collect();
    let styles = status.scopes.iter().map(|scope| fleet::style(&scope.facts));
    lines.extend(draw(columns, &rows, styles, &[0, 6], out));
    lines.extend(status.scopes.iter().filter_map(|scope| {
        let text = fleet::wall_line(&scope.facts)?;
        Some(out.paint(Style::Dim, text))
    }));
    let hidden = status.scopes_total.saturating_sub(status.scopes.len());
    if hidden > 0 {
        lines.push(format!("and {hidden} more scopes"));
    }
    lines.join("\n") + "\n"
}

fn head(status: &Status, out: &Out) -> String {
    let Responder { version, listen, ready, store, .. } = &status.responder;
    let (style, ready) = match (ready, store.up) {
        (true, true) => (Style::Good, "ready"),
        (true, false) => (Style::Bad, "ready, but its store is away"),
        (false, _) => (Style::Bad, "not ready"),
    };
    format!(
        "{} {} on {}  up {}  store {}  members {}  clients {}  sites {}",
        out.paint(Style::Bold, format_args!("tidegate {}", clean(version))),
        out.paint(style, ready),
        clean(listen),
        span(Duration::from_secs(status.uptime_s)),
        clean(&store.kind),
        status.members,
        status.client_connections,
        status.upstream_connections,
    )
}

fn row(scope: &ScopeStatus) -> [String; 8] {
    let blocks: u64 = scope.verdicts.iter().filter(|(v, _)| *v != "ok").map(|(_, n)| n).sum();
    let [name, rate, mark, limit, held, streak, state] = fleet::cells(&scope.facts);
    [name, rate, mark, limit, held, streak, state, blocks.to_string()]
}
