//! Events as JSON, for `GET /api/v1/events` and its stream.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{
    Event, EventRecord, Trip,
    text::{clean, shown},
};
use crate::{
    classify::verdict::{Evidence, Judgement},
    observability::status::{WallStatus, scope_name},
};

impl Serialize for EventRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = Map::new();
        fields.insert("id".to_owned(), json!(self.id));
        fields.insert("at_ms".to_owned(), json!(self.at_ms));
        fields.insert("event".to_owned(), json!(self.event.kind()));
        if let Some((rule, key)) = self.event.rule_and_key() {
            fields.insert("rule".to_owned(), json!(rule));
            fields.insert("key".to_owned(), json!(clean(key)));
        }
        if let Value::Object(own) = self.event.to_json() {
            fields.extend(own);
        }
        fields.serialize(serializer)
    }
}

impl Event {
    /// The word for this kind of event in the API.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Blocked { .. } => "blocked",
            Self::Tripped { .. } => "tripped",
            Self::Cleared { .. } => "cleared",
            Self::ProbeSent { .. } => "probe_sent",
            Self::Probe { .. } => "probe",
            Self::Observed { .. } => "observed",
            Self::RateLearned { .. } => "rate_learned",
            Self::Wall { wall: Some(_), .. } => "wall_named",
            Self::Wall { wall: None, .. } => "wall_dropped",
            Self::PlacesTaken { .. } => "places_taken",
            Self::UserOver { .. } => "user_over",
            Self::OutsideHours { .. } => "outside_hours",
            Self::SiteLimit { .. } => "site_limit",
            Self::StoreDown { .. } => "store_down",
            Self::StoreUp => "store_up",
            Self::StoreNews { .. } => "store_news",
            Self::Reloaded { .. } => "reloaded",
            Self::ReloadFailed { .. } => "reload_failed",
            Self::Warned { .. } => "warned",
            Self::Panicked { .. } => "panicked",
            Self::Started { .. } => "started",
            Self::Stopping { .. } => "stopping",
            Self::Stopped { .. } => "stopped",
        }
    }

    /// The scope of the event, if it has one.
    #[must_use]
    pub fn scope(&self) -> Option<String> {
        self.rule_and_key().map(|(rule, key)| scope_name(rule, key))
    }

    fn rule_and_key(&self) -> Option<(&str, &str)> {
        match self {
            Self::Blocked { rule, key, .. }
            | Self::Tripped { rule, key, .. }
            | Self::Cleared { rule, key, .. }
            | Self::ProbeSent { rule, key, .. }
            | Self::Observed { rule, key, .. }
            | Self::Probe { rule, key, .. }
            | Self::RateLearned { rule, key, .. }
            | Self::Wall { rule, key, .. }
            | Self::PlacesTaken { rule, key, .. }
            | Self::UserOver { rule, key, .. }
            | Self::SiteLimit { rule, key, .. } => Some((rule, key)),
            _ => None,
        }
    }

    /// The fields as JSON, except the rule and the key of its scope; durations in milliseconds.
    fn to_json(&self) -> Value {
        match self {
            Self::Blocked { target, judgement, .. } => {
                let mut fields = judged(judgement);
                fields["url"] = json!(shown(target));
                fields
            }
            Self::Tripped { trip, .. } => tripped(trip),
            Self::Cleared { by, who, .. } => {
                json!({"by": by.as_str(), "who": who.as_deref().map(clean)})
            }
            Self::Probe { result, .. } => json!({"result": result.as_str()}),
            Self::ProbeSent { target, .. } => json!({"url": shown(target)}),
            Self::Observed { action, requests, wait, .. } => {
                json!({"action": action.as_str(), "requests": requests, "wait_ms": ms(*wait)})
            }
            Self::RateLearned { from, learned, ours, who, .. } => json!({
                "from": from, "to": learned.rate, "mark": (learned.mark > 0.0).then_some(learned.mark),
                "why": learned.why.as_str(), "frozen": learned.frozen, "ours": ours,
                "who": who.as_deref().map(clean),
            }),
            Self::Wall { wall, .. } => json!({"wall": wall.map(WallStatus::from)}),
            Self::PlacesTaken { parallel, under_way, held, .. } => {
                json!({"parallel": parallel, "under_way": under_way, "held": held})
            }
            Self::UserOver { user, wait, held, .. } => {
                json!({"user": clean(user), "wait_ms": ms(*wait), "held": held})
            }
            Self::SiteLimit { target, rate, .. } => json!({"url": shown(target), "rate": rate}),
            Self::OutsideHours { rule, wait } => json!({"rule": &**rule, "wait_ms": ms(*wait)}),
            Self::StoreDown { kind, cause, server, reason, advice, mode, holds } => json!({
                "kind": kind, "cause": cause, "server": clean(server), "reason": clean(reason),
                "advice": advice, "on_failure": mode.as_str(), "holds": holds,
            }),
            Self::StoreUp => json!({}),
            Self::StoreNews { hears, reason } => {
                json!({"hears": hears, "reason": reason.as_deref().map(clean)})
            }
            Self::Reloaded { changes, needs_restart } => {
                json!({"changes": changes, "needs_restart": needs_restart})
            }
            Self::ReloadFailed { problems } => json!({"problems": problems}),
            Self::Warned { what } | Self::Panicked { what } => json!({"what": clean(what)}),
            Self::Started { listen, admin, store, rules } => {
                json!({"listen": listen, "admin": admin, "store": store, "rules": rules})
            }
            Self::Stopping { why, drain } => json!({"why": why, "drain_ms": ms(*drain)}),
            Self::Stopped { cut_off } => json!({"cut_off": cut_off}),
        }
    }
}

fn tripped(trip: &Trip) -> Value {
    let blocks: Map<_, _> =
        trip.blocks.iter().map(|(verdict, n)| (verdict.as_str().to_owned(), json!(n))).collect();
    let answer = trip.answer.as_ref();
    json!({
        "by": trip.by(), "cause": trip.cause(),
        "streak": trip.streak, "blocks": blocks, "length_ms": ms(trip.length),
        "member": clean(&trip.member), "ours": trip.made_by_us, "observe": trip.observe,
        "who": trip.who.as_deref().map(clean),
        "url": answer.map(|answer| shown(&answer.target)),
        "status": answer.and_then(|answer| answer.status),
        "evidence": answer.and_then(|answer| answer.evidence.as_deref()).map(evidence_json),
    })
}

fn judged(judgement: &Judgement) -> Value {
    json!({
        "verdict": judgement.verdict.as_str(),
        "confidence": judgement.confidence.as_str(),
        "status": judgement.status,
        "retry_after_ms": judgement.retry_after.map(ms),
        "evidence": judgement.evidence.as_deref().map(evidence_json),
    })
}

fn evidence_json(evidence: &Evidence) -> Value {
    json!({
        "signature": &*evidence.signature, "vendor": evidence.vendor.as_deref(),
        "place": clean(&evidence.place), "excerpt": clean(&evidence.excerpt),
    })
}

pub(super) fn ms(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
