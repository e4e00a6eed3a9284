//! `POST|DELETE /api/v1/scopes/{scope}/cooldown` and `.../rate`: the manual changes of a scope. A
//! scope is `rule`, or `rule/key` if the rule is split.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Context,
    api::{bad, read, seconds},
    reply::Problem,
};
use crate::{
    gate::ScopeError,
    limiter::{
        learn::{KnownRate, RateOverride},
        policy::Split,
    },
    rules::RuleSet,
    target::Host,
};

/// Longest manual cooldown: a day, so that a typing error ends by itself.
const MAX_COOLDOWN_S: f64 = 86_400.0;

/// The part of a scope to change.
enum ScopePart<'a> {
    Cooldown(&'a str),
    Rate(&'a str),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Length {
    seconds: Option<f64>,
    /// The name that the operator gives.
    who: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    who: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rate {
    /// Tokens per second.
    rate: Option<f64>,
    frozen: Option<bool>,
    /// The name that the operator gives.
    who: Option<String>,
}

/// `POST`: trips a cooldown, or sets, freezes or unfreezes a learned rate.
pub(super) async fn post(
    State(cx): State<Arc<Context>>,
    Path(path): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    match part(&path)? {
        ScopePart::Cooldown(scope) => {
            let scope = exact(&cx.gate.rules(), scope)?;
            let asked: Length = read(&body)?;
            let length = match asked.seconds {
                Some(length) => seconds("seconds", length, 1.0, MAX_COOLDOWN_S)?,
                None => cx.gate.draw_length(&scope).map_err(refused)?,
            };
            cx.gate.trip(&scope, length, who(asked.who)?).await.map_err(refused)?;
            cx.fleet.forget();
            Ok(Json(json!({"scope": scope, "cooldown_ms": length.as_millis()})))
        }
        ScopePart::Rate(scope) => {
            let Rate { rate, frozen, who: name } = read(&body)?;
            if rate.is_none() && frozen.is_none() {
                return Err(bad("say what to change: `rate` (per second), `frozen` or both"));
            }
            change_rate(&cx, scope, RateOverride::Set { rate, frozen }, who(name)?).await
        }
    }
}

/// `DELETE`: ends a cooldown; forgets a learned rate.
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    Path(path): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    match part(&path)? {
        ScopePart::Cooldown(scope) => {
            let scope = exact(&cx.gate.rules(), scope)?;
            let asked: End = read(&body)?;
            cx.gate.clear(&scope, who(asked.who)?).await.map_err(refused)?;
            cx.fleet.forget();
            Ok(Json(json!({"scope": scope, "cooldown_ms": 0})))
        }
        ScopePart::Rate(scope) => {
            let asked: Option<End> = read(&body)?;
            change_rate(&cx, scope, RateOverride::Forget, who(asked.and_then(|asked| asked.who))?)
                .await
        }
    }
}

/// Checks the name of an operator for events and the log.
fn who(name: Option<String>) -> Result<Option<Arc<str>>, Problem> {
    const LONGEST: usize = 64;
    match name {
        Some(name) if name.chars().count() > LONGEST => {
            Err(bad(format!("who: at most {LONGEST} characters")))
        }
        name => Ok(name.filter(|name| !name.is_empty()).map(Arc::from)),
    }
}

async fn change_rate(
    cx: &Context,
    scope: &str,
    change: RateOverride,
    who: Option<Arc<str>>,
) -> Result<Json<Value>, Problem> {
    let scope = exact(&cx.gate.rules(), scope)?;
    let changed = cx.gate.override_rate(&scope, change, who).await.map_err(refused)?;
    let KnownRate { rate, mark, frozen, .. } = changed;
    cx.fleet.forget();
    let mark = (mark > 0.0).then_some(mark);
    Ok(Json(json!({"scope": scope, "rate": rate, "mark": mark, "frozen": frozen})))
}

/// The scope as the fleet names it: `rule/WWW.Shop.example` is `rule/shop.example` under `per: domain`. The gate
/// reports unknown rules.
///
/// # Errors
/// A key is missing or too much, or no request of the rule has it.
fn exact(rules: &RuleSet, scope: &str) -> Result<String, Problem> {
    let (name, key) = scope.split_once('/').unwrap_or((scope, ""));
    let unknown = |why: String| {
        Err(Problem::new(StatusCode::NOT_FOUND, format!("there is no scope `{scope}`: {why}")))
    };
    let Some(rule) = rules.as_slice().iter().find(|rule| *rule.name == *name) else {
        return Ok(scope.to_owned());
    };
    let Some(per) = rule.cooldown.as_ref().map(|policy| policy.per) else {
        return Ok(scope.to_owned());
    };
    match (per, Host::parse(key)) {
        (Split::All, _) if key.is_empty() => Ok(scope.to_owned()),
        (Split::All, _) => unknown(format!("the rule is not split, write `{name}`")),
        (Split::Domain | Split::Host | Split::Address, _) if key.is_empty() => unknown(format!(
            "the rule has several, write `{name}/KEY` as `tidegate status` shows it"
        )),
        (Split::Host, Ok(host)) if !rule.matcher.matches_host(&host) => {
            unknown(format!("no request to `{key}` can match the rule's hosts"))
        }
        (Split::Domain | Split::Host, Ok(host)) => Ok(format!("{name}/{}", per.key(&host))),
        (Split::Domain | Split::Host, Err(why)) => unknown(why.to_string()),
        (Split::Address, _) => Ok(scope.to_owned()),
    }
}

fn part(path: &str) -> Result<ScopePart<'_>, Problem> {
    match path.rsplit_once('/') {
        Some((scope, "cooldown")) if !scope.is_empty() => Ok(ScopePart::Cooldown(scope)),
        Some((scope, "rate")) if !scope.is_empty() => Ok(ScopePart::Rate(scope)),
        _ => {
            let why = "the path is /api/v1/scopes/RULE/cooldown or /api/v1/scopes/RULE/KEY/cooldown, \
                       or the same with rate";
            Err(Problem::new(StatusCode::NOT_FOUND, why))
        }
    }
}

fn refused(error: ScopeError) -> Problem {
    let status = match error {
        ScopeError::NoSuchScope(_) => StatusCode::NOT_FOUND,
        ScopeError::NoCooldown(_) | ScopeError::NotLearned(_) => StatusCode::CONFLICT,
        ScopeError::OutOfBounds { .. } => StatusCode::BAD_REQUEST,
        ScopeError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::new(status, error.to_string())
}
