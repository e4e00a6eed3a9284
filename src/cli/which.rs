//! `tidegate check --explain URL`: the rule of a request, its scope and limits, and why it applies.

use std::{net::Ipv4Addr, sync::Arc};

use serde_json::json;

use super::{
    Outcome, Usage,
    out::{Out, Style},
};
use crate::{
    config::Loaded,
    gate::Client,
    proxy::egress::{DialError, Guard, OwnAddresses, reached},
    rules::{Action, Rule},
    target::{Scheme, Target},
};

/// Settings that apply to a rule without limits.
const WITHOUT_LIMITS: [&str; 5] = ["match", "action", "intercept", "verify", "tunnel"];

words! {
    /// The form in which the proxy sees a request.
    pub(super) enum Seen {
        /// As a plain request.
        Plain = "plain",
        /// As a tunnel: the host and port, but neither path nor response.
        Tunnel = "tunnel",
        /// Inside an intercepted CONNECT.
        Intercepted = "intercepted",
    }
}

impl Seen {
    const fn words(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Tunnel => {
                "  as a tunnel: the rule sees the host, but neither paths nor responses"
            }
            Self::Intercepted => "  intercepted: the rule sees the request inside the CONNECT",
        }
    }
}

/// One setting of the rule: key, value, and its place in a file.
type Setting = (String, String, Option<String>);

/// Explains how a valid file treats requests for `url`.
pub(super) fn explain(
    loaded: &Loaded,
    url: &str,
    json: bool,
    out: &Out,
) -> anyhow::Result<Outcome> {
    let target = Target::of_url(url).map_err(|error| Usage(format!("--explain: {error}")))?;
    let (seen, target) = seen(loaded, target);
    let rules = loaded.rules.as_slice();
    let Some(at) = loaded.rules.find(&target) else {
        if json {
            out.json(&json!({"url": url, "seen": seen.as_str(), "rule": null}))?;
        } else {
            out.line(format_args!("no rule matches {url}: the request is refused"))?;
        }
        return Ok(Outcome::Negative);
    };
    let rule = &rules[at];
    let (target, unknown) = match server(loaded, rule, &target)? {
        Ok(server) => (Target { server, ..target }, None),
        Err(why) => (target, Some(why)),
    };
    let scope = scope(rule, &target);
    let settings = settings(loaded, rule);
    let passed = rules[..at].iter().map(|earlier| (&*earlier.name, why_not(earlier, &target)));
    let origin = loaded.origin(&format!("rules.{}.name", rule.name));
    if json {
        let settings = settings
            .iter()
            .map(|(key, value, origin)| (key.clone(), json!({"value": value, "origin": origin})));
        let passed = passed.map(|(rule, why)| json!({"rule": rule, "why": why}));
        out.json(&json!({
            "url": url, "seen": seen.as_str(), "rule": &*rule.name, "origin": origin, "scope": scope,
            "scope_unknown": unknown.map(|why| why.to_string()),
            "settings": settings.collect::<serde_json::Map<_, _>>(),
            "passed_by": passed.collect::<Vec<_>>(),
        }))?;
        return Ok(Outcome::Success);
    }
    let origin = origin.unwrap_or_else(|| "built in".to_owned());
    let name = out.paint(Style::Bold, &rule.name);
    out.line(format_args!("rule   {name}  ({origin}){}", seen.words()))?;
    let unknown = unknown.map(|why| format!("/?  {why}")).unwrap_or_default();
    out.line(format_args!("scope  {scope}{unknown}"))?;
    let width = settings.iter().map(|(key, ..)| key.len()).max().unwrap_or(0);
    for (key, value, origin) in settings {
        let origin = out.paint(Style::Dim, origin.unwrap_or_else(|| "default".to_owned()));
        out.line(format_args!("  {key:width$}  {value}  ({origin})"))?;
    }
    for (earlier, why) in passed {
        out.line(format_args!("not {earlier}, which comes before it: {why}"))?;
    }
    Ok(Outcome::Success)
}

/// The form in which the proxy sees a request to `target`, and the target that the rules see.
pub(super) fn seen(loaded: &Loaded, target: Target) -> (Seen, Target) {
    if target.scheme != Scheme::Https {
        return (Seen::Plain, target);
    }
    let tunnel = Target { path: "".into(), ..target.clone() };
    let taker = loaded.rules.find(&tunnel).map(|at| &loaded.rules.as_slice()[at]);
    match taker {
        Some(rule) if rule.intercept => (Seen::Intercepted, target),
        _ => (Seen::Tunnel, tunnel),
    }
}

/// The server of `target` if it names the scope: the lowest address that the egress rules allow, as
/// this machine resolves the name. The inner error is what the proxy would refuse the request with.
fn server(
    loaded: &Loaded,
    rule: &Rule,
    target: &Target,
) -> anyhow::Result<Result<Option<Arc<str>>, DialError>> {
    if !rule.is_per_address() {
        return Ok(Ok(None));
    }
    let settings = &loaded.settings;
    let guard = Guard::new(&settings.egress, Arc::new(OwnAddresses::from(Vec::new())));
    let client = Client::Address(Ipv4Addr::LOCALHOST.into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let look_up = guard.look_up(&target.host, target.port, &client, settings.timeouts.connect);
    let found = runtime.block_on(look_up);
    Ok(found.map(|ips| ips.first().map(|ip| rule.server(&target.host, reached(*ip)))))
}

fn scope(rule: &Rule, target: &Target) -> String {
    let cooldown = rule.cooldown.as_ref().map_or(rule.per, |cooldown| cooldown.per);
    let keys = [cooldown, rule.per].map(|per| per.key_of(target));
    match keys.iter().find(|key| !key.is_empty()) {
        Some(key) => format!("{}/{key}", rule.name),
        None => rule.name.to_string(),
    }
}

/// The relevant settings of a rule, sorted by name.
fn settings(loaded: &Loaded, rule: &Rule) -> Vec<Setting> {
    let prefix = |rule: &Rule| format!("rules.{}.", rule.name);
    let own = prefix(rule);
    // The settings of rule `a.b` do not belong to rule `a`.
    let names = loaded.rules.as_slice().iter().map(|other| prefix(other));
    let longer: Vec<_> = names.filter(|name| name.len() > own.len()).collect();
    let limits = rule.action == Action::Limit;
    let values =
        loaded.values().filter(|(path, _)| !longer.iter().any(|name| path.starts_with(name)));
    let settings = values.filter_map(|(path, value)| {
        let key = path.strip_prefix(&own)?;
        let means = limits || WITHOUT_LIMITS.contains(&key.split('.').next()?);
        (means && key != "name").then(|| (key.to_owned(), value.to_owned(), loaded.origin(path)))
    });
    settings.collect()
}

fn why_not(rule: &Rule, target: &Target) -> &'static str {
    if !rule.matcher.matches_host(&target.host) {
        "it is for other hosts"
    } else if target.path.is_empty() {
        "it is for some paths only, and a CONNECT has none"
    } else {
        "it is for other paths"
    }
}
