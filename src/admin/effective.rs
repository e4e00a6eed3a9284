//! `GET /api/v1/config`: the settings and rules in force, secrets as `***`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde_json::{Value, json};

use super::Context;
use crate::{
    rules::{CooldownPolicy, Rule},
    settings::{Settings, StoreSettings},
};

const HIDDEN: &str = "***";

/// What is in force. Lengths are in milliseconds, rates in tokens per second.
pub(super) async fn config(State(cx): State<Arc<Context>>) -> Json<Value> {
    let settings = Arc::clone(&cx.proxy.settings());
    let rules = cx.rules.load();
    let rules: Vec<Value> = rules.as_slice().iter().map(|rule| rule_json(rule)).collect();
    let mut all = settings_json(&settings);
    all["file"] = json!(cx.config.lock().file);
    all["rules"] = json!(rules);
    Json(all)
}

fn settings_json(settings: &Settings) -> Value {
    let Settings { timeouts, limits, inspect, refuse, log, .. } = settings;
    json!({
        "listen": settings.listen,
        "admin": settings.admin.as_ref().map(|admin| json!({
            "listen": admin.listen,
            "token": admin.token.as_ref().map(|_| HIDDEN),
        })),
        "store": store_json(&settings.store),
        "auth": {
            "users": settings.auth.users.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
            "networks": settings.auth.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "none": settings.auth.none,
        },
        "egress": {
            "allow": settings.egress.allow.iter().map(|p| format!("{p:?}")).collect::<Vec<_>>(),
            "deny": settings.egress.deny.iter().map(|p| format!("{p:?}")).collect::<Vec<_>>(),
            "connect_ports": settings.egress.connect_ports,
        },
        "inspect": {
            "bytes": inspect.bytes, "error_bytes": inspect.error_bytes,
            "delay_ms": ms(inspect.delay),
        },
        "timeouts": {
            "header_ms": ms(timeouts.header), "connect_ms": ms(timeouts.connect),
            "response_ms": ms(timeouts.response), "idle_ms": ms(timeouts.idle),
            "drain_ms": ms(timeouts.drain),
        },
        "limits": {
            "connections": limits.connections, "per_client": limits.per_client,
            "tunnels": limits.tunnels, "header_bytes": limits.header_bytes,
            "headers": limits.headers, "idle_per_host": limits.idle_per_host,
            "idle_total": limits.idle_total,
        },
        "ca_dir": settings.ca_dir,
        "ca": settings.ca.as_ref().map(|(cert, _)| json!({"cert": cert, "key": HIDDEN})),
        "upstream_ca": settings.upstream_ca,
        "annotate": settings.annotate,
        "refuse": {"limit": refuse.limit, "cooldown": refuse.cooldown},
        "log": {
            "level": log.level, "format": format!("{:?}", log.format).to_lowercase(),
            "access": log.access,
        },
    })
}

/// The URL may hold a password, so only its scheme is shown.
fn store_json(store: &StoreSettings) -> Value {
    match store {
        StoreSettings::Memory => json!("memory"),
        StoreSettings::Redis(redis) => {
            let scheme = redis.url.expose().split_once("://").map_or("redis", |(scheme, _)| scheme);
            json!({
                "url": format!("{scheme}://{HIDDEN}"), "prefix": redis.prefix,
                "timeout_ms": ms(redis.timeout), "on_failure": redis.on_failure.as_str(),
                "local_share": redis.local_share,
            })
        }
    }
}

fn rule_json(rule: &Rule) -> Value {
    let quotas = rule.limits.quotas.iter();
    let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
    json!({
        "name": &*rule.name,
        "hosts": rule.matcher.hosts.iter().map(|host| format!("{host:?}")).collect::<Vec<_>>(),
        "paths": rule.matcher.paths.iter().map(|path| &**path).collect::<Vec<_>>(),
        "action": word(&rule.action),
        "per": word(&rule.per),
        "rate": rule.limits.rate,
        "burst": rule.limits.burst,
        "quotas": quotas.map(|q| json!({"tokens": q.tokens, "window_ms": ms(q.window)}))
            .collect::<Vec<_>>(),
        "cost": rule.limits.cost,
        "max_wait_ms": ms(rule.max_wait),
        "queue": rule.queue,
        "order": word(&rule.order),
        "mode": word(&rule.mode),
        "intercept": rule.intercept,
        "verify": rule.verify,
        "tunnel": word(&rule.tunnel),
        "retry": {"attempts": rule.retry.attempts},
        "cooldown": rule.cooldown.as_ref().map(cooldown_json),
    })
}

fn cooldown_json(cooldown: &CooldownPolicy) -> Value {
    let on = cooldown.on.verdicts.iter();
    let on: serde_json::Map<String, Value> =
        on.map(|(verdict, weight)| (verdict.as_str().to_owned(), json!(weight))).collect();
    json!({
        "per": format!("{:?}", cooldown.per).to_lowercase(),
        "after": cooldown.after,
        "ratio": cooldown.ratio.map(|ratio| json!({"share": ratio.share, "of": ratio.of})),
        "on": on,
        "statuses": cooldown.on.statuses,
        "for_ms": [ms(cooldown.length.0), ms(cooldown.length.1)],
        "forget_after_ms": ms(cooldown.forget_after),
        "probe": cooldown.probe,
        "grow": cooldown.grow,
        "max_ms": ms(cooldown.max),
        "respect_retry_after": cooldown.respect_retry_after,
        "ramp_ms": ms(cooldown.ramp),
    })
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
