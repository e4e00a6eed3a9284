//! `POST /api/v1/when`: the earliest time at which a request could be sent. It takes no token, so a
//! crawler can ask for many sites and request only those that are open.

use std::{sync::Arc, time::Duration};

use axum::{Json, body::Bytes, extract::State};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{
    Context,
    api::{bad, read, target},
    locate::locate,
    reply::Problem,
};
use crate::{gate::When, runtime::clock, target::Target};

/// Most URLs in one request.
const MOST: usize = 1_000;
/// Largest body: enough for so many URLs of usual length.
pub(super) const BODY: usize = 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    url: Option<String>,
    urls: Option<Vec<String>>,
    /// The proxy user whose requests they would be.
    user: Option<Arc<str>>,
}

/// The response for one URL or for many, like the request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum WhenReply {
    One(Box<Next>),
    Many { results: Vec<Next> },
}

/// When a request for one URL could be sent.
#[derive(Debug, Serialize)]
pub(super) struct Next {
    url: String,
    /// Why the URL is invalid, or has no scope because its name could not be resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    rule: Option<String>,
    /// `rule`, or `rule/key` if the rule is split.
    scope: Option<String>,
    /// Milliseconds from now; `None` if unknown or never.
    in_ms: Option<u64>,
    /// The same as a point in time, by this member's clock.
    at_ms: Option<u64>,
    reason: Option<&'static str>,
}

/// Handles `POST /api/v1/when`.
pub(super) async fn when(
    State(cx): State<Arc<Context>>,
    body: Bytes,
) -> Result<Json<WhenReply>, Problem> {
    let asked: Asked = read(&body)?;
    let (urls, is_one) = match (asked.url, asked.urls) {
        (Some(url), None) => (vec![url], true),
        (None, Some(urls)) if urls.len() <= MOST => (urls, false),
        (None, Some(_)) => return Err(bad(format!("urls: at most {MOST}"))),
        _ => return Err(bad("name the sites with `url` or `urls`")),
    };
    let parsed = locate_all(&cx, urls.iter().map(|url| target(url)).collect()).await;
    let targets: Vec<Target> = parsed.iter().flatten().cloned().collect();
    let mut found = cx.gate.when(&targets, asked.user.as_ref()).await.into_iter();
    let now = clock::unix_ms();
    let mut results = Vec::with_capacity(urls.len());
    for (url, target) in urls.into_iter().zip(parsed) {
        results.push(match target {
            Ok(_) => Next::of(url, found.next(), now),
            Err(problem) if is_one => return Err(problem),
            Err(problem) => Next { error: Some(problem.detail()), ..Next::of(url, None, now) },
        });
    }
    Ok(Json(match results.pop() {
        Some(one) if is_one => WhenReply::One(Box::new(one)),
        last => {
            results.extend(last);
            WhenReply::Many { results }
        }
    }))
}

/// Looks up the sites of rules with `per: address`, all at once. The resolver has its own bounds.
async fn locate_all(
    cx: &Arc<Context>,
    targets: Vec<Result<Target, Problem>>,
) -> Vec<Result<Target, Problem>> {
    let mut looking = JoinSet::new();
    for (at, target) in targets.iter().enumerate() {
        let Ok(target) = target else { continue };
        if cx.gate.find(target).is_some_and(|entry| entry.rule.is_per_address()) {
            let (cx, mut target) = (Arc::clone(cx), target.clone());
            looking.spawn(async move {
                let located = locate(&cx, &mut target).await;
                (at, located.map(|()| target))
            });
        }
    }
    let mut targets = targets;
    while let Some(looked_up) = looking.join_next().await {
        if let Ok((at, target)) = looked_up {
            targets[at] = target;
        }
    }
    targets
}

impl Next {
    fn of(url: String, when: Option<When>, now: u64) -> Self {
        let wait = when.as_ref().and_then(|when| when.wait).map(millis);
        let reason = when.as_ref().and_then(|when| when.reason);
        let ruled = when.and_then(|when| Some((when.entry?.rule.name.to_string(), when.scope)));
        let (rule, scope) = ruled.unzip();
        Self {
            url,
            error: None,
            rule,
            scope,
            in_ms: wait,
            at_ms: wait.map(|wait| now.saturating_add(wait)),
            reason: reason.map(|reason| reason.as_str()),
        }
    }
}

/// Whole milliseconds, rounded up, so that a request after this time is not held.
fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
