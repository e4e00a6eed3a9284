//! Rules that no request reaches, rules that `https` requests bypass, and requests without a rule.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::{
        cursor::Cursor,
        units::{Wrong, quote},
    },
    rules::{Action, HostPattern, Matcher, Rule, TunnelCount},
    target::glob_matches,
};

/// The rules of a host pattern: number of the rule, its paths.
type ByHost = HashMap<HostPattern, Vec<(usize, Vec<Arc<str>>)>>;

/// Reports every rule that is hidden by earlier ones, and a last rule that does not match
/// everything.
pub(super) fn check(rules: &[(Cursor<'_>, Rule)]) {
    let mut seen = ByHost::new();
    let read: Vec<_> =
        rules.iter().enumerate().filter(|(_, (cursor, _))| !cursor.is_wrong("match")).collect();
    for (at, (cursor, rule)) in read {
        if let Some(earlier) = shadow(&rule.matcher, &seen) {
            let name = &rules[earlier].1.name;
            let message = format!(
                "no request reaches it: {} comes first and matches everything that it matches",
                quote(name)
            );
            let help = "the first rule that matches wins: move this one up, or remove it";
            cursor.open().wrong("match", Wrong::new(message, help));
        }
        for host in hosts(&rule.matcher) {
            seen.entry(host).or_default().push((at, rule.matcher.paths.clone()));
        }
    }
    warn_of_paths(rules);
    if let Some((cursor, last)) = rules.last()
        && !cursor.is_wrong("match")
        && shadow(&Matcher::default(), &seen).is_none()
    {
        let message =
            format!("{} is the last rule and does not match everything", quote(&last.name));
        let help = "end with a rule that has `match: \"*\"`, so that nothing goes unlimited by \
                    oversight";
        cursor.open().warn("match", Wrong::new(message, help));
    }
}

/// Warns of rules with `paths` that get no `https` request. A CONNECT has no path, so another rule
/// matches it, and the requests inside are visible only if that rule intercepts.
fn warn_of_paths(rules: &[(Cursor<'_>, Rule)]) {
    let by_path = |rule: &Rule| {
        !rule.matcher.paths.is_empty() && !rule.matcher.paths.iter().any(|p| glob_matches(p, ""))
    };
    // One that intercepts by paths has a warning of its own.
    let is_meant = |rule: &Rule| by_path(rule) && !rule.intercept;
    for (cursor, rule) in
        rules.iter().filter(|(cursor, rule)| is_meant(rule) && !cursor.is_wrong("match"))
    {
        let taker = |host: &HostPattern| {
            let wider = wider(host);
            let takes = |one: &&(Cursor<'_>, Rule)| {
                !by_path(&one.1) && hosts(&one.1.matcher).iter().any(|host| wider.contains(host))
            };
            rules.iter().find(takes).map(|(_, rule)| rule)
        };
        let blind = hosts(&rule.matcher).iter().filter_map(taker).find(|taker| {
            !taker.intercept && taker.action != Action::Deny && taker.tunnel != TunnelCount::Refuse
        });
        if let Some(blind) = blind {
            let message = format!(
                "`https` requests bypass this rule: a CONNECT has no path, and {} takes it \
                 without intercepting",
                quote(&blind.name)
            );
            let help = format!(
                "set `intercept: true` on {}, or on a rule before it for these hosts without `paths`; \
                 without it this rule sees plain `http` only",
                quote(&blind.name)
            );
            cursor.open().warn("match", Wrong::new(message, help));
        }
    }
}

fn hosts(matcher: &Matcher) -> Vec<HostPattern> {
    if matcher.hosts.is_empty() { vec![HostPattern::Any] } else { matcher.hosts.clone() }
}

/// The earlier rule that hides `matcher`, if each pair of its hosts and paths is covered by a single
/// earlier pattern. A pair that only several patterns combined cover is not reported.
fn shadow(matcher: &Matcher, seen: &ByHost) -> Option<usize> {
    let everything = [Arc::from("*")];
    let paths = if matcher.paths.is_empty() { &everything[..] } else { &matcher.paths };
    let mut last = None;
    for host in hosts(matcher) {
        for path in paths {
            let by = wider(&host).into_iter().find_map(|wider| {
                seen.get(&wider)?.iter().find(|(_, paths)| covers(paths, path)).map(|(at, _)| *at)
            })?;
            last = last.max(Some(by));
        }
    }
    last
}

/// Whether every path that `glob` matches is matched by one of `paths`.
fn covers(paths: &[Arc<str>], glob: &str) -> bool {
    // A `*` of `glob`, taken literally, can only be matched by a `*`, which then also matches
    // everything that it stands for.
    paths.is_empty() || paths.iter().any(|path| glob_matches(path, glob))
}

/// The pattern itself and every pattern that covers it.
fn wider(host: &HostPattern) -> Vec<HostPattern> {
    let mut wider = vec![host.clone()];
    if let HostPattern::Exact(name) | HostPattern::Below(name) = host {
        let mut rest: &str = name;
        while let Some((_, parent)) = rest.split_once('.') {
            wider.push(HostPattern::Below(Arc::from(parent)));
            rest = parent;
        }
    }
    wider.push(HostPattern::Any);
    wider
}
