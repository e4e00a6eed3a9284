//! One rule.

use std::{rc::Rc, sync::Arc, time::Duration};

use ipnet::IpNet;

use super::{
    FileContext, cooldown,
    detect::{self, Signatures},
    hosts,
    learn::{self, Ceiling},
    paths,
};
use crate::{
    classify::{Classifier, verdict::Verdict},
    config::{
        cursor::Cursor,
        keys::{Kind, RULE},
        range,
        section::Reader,
        syntax_tree::{Name, Node, Value},
        units::{self, Read, Wrong, quote},
    },
    limiter::policy::{CooldownPolicy, Limits, Quota, Split},
    rules::{Action, HostPattern, Matcher, Retry, Rule, TunnelCount, UpstreamProxy},
    target::glob_matches,
};

/// Keys that have an effect on a rule with `bypass` or `deny`.
const WITHOUT_LIMITS: [&str; 7] =
    ["name", "match", "action", "intercept", "verify", "via", "tunnel"];

/// A rule, as a kind.
static KIND: Kind = Kind::Section(&RULE);

/// The values of `defaults`, for every rule without the key.
pub(super) type Defaults = Vec<(Name, Rc<Node>)>;

/// Reads `defaults`. They are checked as a rule of their own, because a value that every rule
/// overrides would not be read otherwise.
pub(super) fn defaults(
    file: &Reader<'_>,
    signatures: &Signatures,
    context: &FileContext<'_>,
) -> Defaults {
    let Some(cursor) = file.cursor("defaults") else { return Vec::new() };
    let section = cursor.open();
    let Value::Map(entries) = &cursor.node.value else { return Vec::new() };
    let known = entries.iter().filter(|(name, _)| section.knows(&name.text));
    let known: Defaults = known.cloned().collect();
    let place = cursor.node.place;
    let given = |key: &str, text| (Name { text: key.to_owned(), place }, Node::of_text(text));
    let mut rule = vec![given("name", "defaults"), given("match", "*")];
    if !section.has("rate") {
        rule.push(given("rate", "1000/s"));
    }
    rule.extend(known.iter().cloned());
    // A label with a bracket is not recorded: each rule records its own effective values.
    let rule = Cursor { node: Node::of_entries(place, rule), kind: &KIND, ..cursor.clone() };
    read(&rule.labelled("rules[]"), signatures, &Vec::new(), context);
    known
}

/// Reads one rule. A mistake is recorded and replaced by a harmless value.
pub(super) fn read(
    cursor: &Cursor<'_>,
    signatures: &Signatures,
    defaults: &Defaults,
    context: &FileContext<'_>,
) -> Rule {
    let mut reader = cursor.open();
    let action = reader.word("action");
    let mut inherited = defaults.clone();
    if action != Action::Limit {
        no_limits(&reader);
        inherited.retain(|(name, _)| WITHOUT_LIMITS.contains(&name.text.as_str()));
    }
    reader.inherit(inherited);
    let matcher = matcher(&reader);
    let intercept = reader.get("intercept");
    if intercept {
        warn_of_intercept(&reader, &matcher);
    }
    let per = reader.word("per");
    let ceiling = reader.optional("rate", learn::ceiling);
    let cost = reader.get("cost");
    let mut limits = limits(&reader, ceiling, cost);
    let each_user = each_user(&reader, &limits);
    let mut cooldown = None;
    if action == Action::Limit {
        cooldown = cooldown::read(&reader, per);
        limits.learn = learn::read(&reader, ceiling, per, cooldown.as_ref());
    }
    let parallel = reader.optional_get("parallel");
    let errors = errors(&reader, cooldown.is_some());
    let eases = eases(&reader, limits.learn.is_some());
    let via = upstream(&reader, context);
    if via.is_some() {
        no_addresses(&reader, per, cooldown.as_ref());
    }
    Rule {
        name: reader.optional("name", hosts::name).unwrap_or_else(|| Arc::from("unnamed")),
        matcher,
        action,
        per,
        address_except: address_except(&reader, per, cooldown.as_ref()),
        limits,
        auto_rate: matches!(ceiling, Some(Ceiling::Auto)),
        site_limits: reader.word::<&str>("site_limits") != "ignore",
        each_user,
        parallel,
        errors,
        eases,
        max_wait: reader.get("max_wait"),
        queue: reader.get("queue"),
        hours: reader.optional("hours", units::hours),
        order: reader.word("order"),
        mode: reader.word("mode"),
        intercept,
        verify: reader.get("verify"),
        via,
        // A rule that inspects requests refuses traffic that it cannot inspect.
        tunnel: reader.optional_word("tunnel").unwrap_or(match intercept {
            true => TunnelCount::Refuse,
            false => TunnelCount::Flights,
        }),
        retry: retry(&reader.section("retry")),
        cooldown,
        classifier: if action == Action::Limit {
            detect::classifier(&reader, signatures)
        } else {
            Classifier::builtin()
        },
    }
}

fn upstream(reader: &Reader<'_>, context: &FileContext<'_>) -> Option<Arc<UpstreamProxy>> {
    let cursor = reader.cursor("via")?;
    let proxy = cursor.scalar(hosts::upstream)?;
    if proxy.login.is_some() {
        paths::warn_if_exposed(&cursor, context);
    }
    Some(Arc::new(proxy))
}

fn no_limits(reader: &Reader<'_>) {
    for name in reader.given().filter(|name| !WITHOUT_LIMITS.contains(&name.text.as_str())) {
        if reader.knows(&name.text) {
            let message = "has no effect on a rule with `bypass` or `deny`";
            reader.wrong_key(name, Wrong::new(message, "remove the key or the `action`"));
        }
    }
}

/// A CONNECT has no path, so only its host decides which rule matches.
fn warn_of_intercept(reader: &Reader<'_>, matcher: &Matcher) {
    let by_path = !matcher.paths.is_empty() && !matcher.paths.iter().any(|p| glob_matches(p, ""));
    if by_path {
        let message = "`intercept` means nothing on a rule with `paths`: a CONNECT has no path, so \
                       this rule never matches one";
        let help = "put `intercept: true` on a rule for these hosts without `paths`, behind this \
                    one; requests inside are then matched by their paths";
        reader.warn("intercept", Wrong::new(message, help));
    }
}

fn limits(reader: &Reader<'_>, ceiling: Option<Ceiling>, cost: u32) -> Limits {
    let rate = ceiling.map(Ceiling::rate);
    let given = reader.optional_get("burst");
    let burst = given.unwrap_or_else(|| default_burst(ceiling, cost));
    if burst < cost {
        let message =
            format!("`cost` {cost} is more than `burst` {burst}: no request could ever go");
        let help = format!("write `burst: {cost}` or more, or a smaller cost");
        reader.wrong(if reader.has("cost") { "cost" } else { "burst" }, Wrong::new(message, help));
    }
    if reader.has("burst") && given.is_some() && !reader.counts("rate") {
        let message = "`burst` has no effect without `rate`";
        reader.warn("burst", Wrong::new(message, "add `rate`, or remove `burst`"));
    }
    let quotas = reader.many("quota", |text| {
        let quota = units::quota(text)?;
        if quota.tokens < u64::from(cost) {
            let message = format!("{} is less than `cost` {cost}", quote(text));
            return Err(Wrong::new(message, "no request could ever go: raise it"));
        }
        Ok(quota)
    });
    let mut windows: Vec<Duration> = quotas.iter().map(|quota| quota.window).collect();
    windows.sort_unstable();
    if windows.windows(2).any(|pair| pair[0] == pair[1]) {
        let help = "the smaller one decides: remove the other";
        reader.wrong("quota", Wrong::new("two quotas have the same window", help));
    }
    Limits { rate, burst, quotas, cost, learn: None }
}

fn each_user(rule: &Reader<'_>, whole: &Limits) -> Option<Limits> {
    let section = rule.cursor("each_user")?.open();
    let ceiling = section.optional("rate", units::rate).map(Ceiling::Written);
    let limits = limits(&section, ceiling, whole.cost);
    if rule.is_wrong("each_user") {
        return None;
    }
    if limits.is_unlimited() {
        let help = "add `rate` or `quota`, or remove `each_user`";
        rule.wrong("each_user", Wrong::new("limits nothing", help));
    } else if whole.is_unlimited() {
        let message = "needs a limit of the rule, with which it is taken jointly";
        let help = "add a `rate` to the rule, as high as you like";
        rule.wrong("each_user", Wrong::new(message, help));
    }
    Some(limits)
}

/// Whether scopes are named by addresses.
fn is_per_address(per: Split, cooldown: Option<&CooldownPolicy>) -> bool {
    per == Split::Address || cooldown.is_some_and(|cooldown| cooldown.per == Split::Address)
}

fn address_except(
    reader: &Reader<'_>,
    per: Split,
    cooldown: Option<&CooldownPolicy>,
) -> Vec<IpNet> {
    if !is_per_address(per, cooldown) && reader.has("address_except") {
        let message = "`address_except` has no effect without `per: address`";
        let help = "add `per: address`, or remove `address_except`";
        reader.warn("address_except", Wrong::new(message, help));
    }
    reader.many("address_except", hosts::network)
}

/// The upstream proxy of a rule looks its names up: their addresses are not known here.
fn no_addresses(reader: &Reader<'_>, per: Split, cooldown: Option<&CooldownPolicy>) {
    if is_per_address(per, cooldown) {
        let message = "`per: address` cannot count with `via`: the upstream proxy looks names up, and this proxy never \
                       sees their addresses";
        let key = if per == Split::Address { "per" } else { "cooldown" };
        reader.wrong(key, Wrong::new(message, "write `per: host`, or remove `via`"));
    }
}

fn errors(reader: &Reader<'_>, cools: bool) -> Option<Quota> {
    let errors = reader.optional("errors", units::quota)?;
    if !cools && reader.counts("errors") {
        let message = "`errors` has no effect without a cooldown, which is what pauses the scope";
        reader.warn("errors", Wrong::new(message, "remove `cooldown: off`, or remove `errors`"));
    }
    Some(errors)
}

fn eases(reader: &Reader<'_>, learns: bool) -> bool {
    let wanted = reader.word::<&str>("overload") == "ease";
    if wanted && !learns && reader.counts("overload") {
        let message = "`overload: ease` has no effect without a rate that is learned";
        let help = "add `rate` and remove `learn: false`, or remove `overload`";
        reader.warn("overload", Wrong::new(message, help));
    }
    wanted && learns
}

/// The tokens of one second, at least the cost of one request.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1,000,000")]
fn default_burst(ceiling: Option<Ceiling>, cost: u32) -> u32 {
    let second = match ceiling {
        Some(Ceiling::Written(rate)) => rate.ceil() as u32,
        Some(Ceiling::Auto) | None => 1,
    };
    second.max(cost)
}

fn matcher(reader: &Reader<'_>) -> Matcher {
    let Some(cursor) = reader.cursor("match") else { return Matcher::default() };
    if !cursor.is_map() {
        return Matcher {
            hosts: cursor.scalar(hosts::host).into_iter().collect(),
            paths: Vec::new(),
        };
    }
    let section = cursor.open();
    if !section.has("hosts") && !section.has("paths") {
        let help = "add `hosts` or `paths`, or write `match: \"*\"`";
        cursor.wrong(Wrong::new("it has neither hosts nor paths", help));
    }
    let mut hosts = section.many("hosts", hosts::host);
    if hosts.contains(&HostPattern::Any) {
        hosts = vec![HostPattern::Any];
    }
    Matcher { hosts, paths: section.many("paths", hosts::glob) }
}

fn retry(section: &Reader<'_>) -> Retry {
    let methods = section.many("methods", method);
    let on = section.many("on", |text| block(section, text));
    Retry { attempts: section.get("attempts"), on, methods }
}

fn block(section: &Reader<'_>, text: &str) -> Read<Verdict> {
    range::word(section.kind("on"), text)
        .map(|word| word.parse().expect("the table's verdicts are verdicts: a test reads each"))
}

fn method(text: &str) -> Read<http::Method> {
    let upper = text.to_ascii_uppercase();
    let wrong =
        || Wrong::new(format!("{} is not a valid method", quote(text)), "write `GET`, `HEAD`, ...");
    let method = http::Method::from_bytes(text.as_bytes()).map_err(|_| wrong())?;
    match text {
        _ if text != upper => Err(Wrong::new(wrong().message, format!("did you mean `{upper}`?"))),
        "CONNECT" => Err(Wrong::new("a CONNECT is never repeated", "list other methods")),
        _ => Ok(method),
    }
}
