//! Checks which rule applies to a URL, and why.

use std::sync::Arc;

use http::{Method, Uri};

use super::Report;
use crate::{
    cli::which::{Seen, seen},
    config::Loaded,
    rules::{Action, Rule},
    target::Target,
};

/// Reports the rule, and how it treats the URL.
pub(super) fn check<'l>(
    loaded: &'l Loaded,
    url: &Uri,
    report: &mut Report,
) -> Option<&'l Arc<Rule>> {
    let rules = loaded.rules.as_slice();
    let page = Target::parse(&Method::GET, url).ok()?;
    let (seen, target) = seen(loaded, page.clone());
    let Some(at) = loaded.rules.find(&target) else {
        let cure = "add a last rule with `match: \"*\"`";
        report.bad("rule", "no rule matches this URL, so it is refused", cure);
        return None;
    };
    let rule = &rules[at];
    let why = why(rule, &page);
    let name = &rule.name;
    if rule.action == Action::Deny {
        let cure = "change its `action`, or add a rule before it";
        report.bad("rule", format!("`{name}` {why}, and denies it"), cure);
        return Some(rule);
    }
    let is_tunnel = seen == Seen::Tunnel;
    let by_path = loaded.rules.find(&page).map(|at| &rules[at].name);
    if let Some(missed) = by_path.filter(|by_path| is_tunnel && *by_path != name) {
        let cure = format!("set `intercept: true` on `{name}`, or leave `paths` out of `{missed}`");
        let what = format!("`{name}` {why}; `{missed}` has `paths`, which a tunnel hides");
        report.bad("rule", what, cure);
    } else if is_tunnel {
        let cure = "set `intercept: true` on it to judge responses: docs/https.md";
        report.note("rule", format!("`{name}` {why}; its tunnels are paced, not judged"), cure);
    } else {
        report.good("rule", format!("`{name}` {why}"));
    }
    Some(rule)
}

/// The conditions that the URL meets.
fn why(rule: &Rule, target: &Target) -> String {
    let hosts = &rule.matcher.hosts;
    let host = hosts.iter().any(|pattern| pattern.matches(&target.host));
    match (host && !hosts.contains(&crate::rules::HostPattern::Any), rule.matcher.paths.is_empty())
    {
        (true, true) => format!("matches by its host, {}", target.host),
        (true, false) => format!("matches by host and path, {}{}", target.host, target.path),
        (false, false) => format!("matches by its path, {}", target.path),
        (false, true) => "matches everything".to_owned(),
    }
}
