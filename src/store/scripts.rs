//! The typed scripts of `lua/`. `arguments` and `replies` name what each script takes and returns, once for both
//! languages. `calls` lists the scripts, and `text` assembles them.

mod arguments;
mod calls;
mod constants;
mod fields;
mod replies;
mod text;

use std::sync::Arc;

use fred::types::Value;

pub(super) use self::{
    arguments::*,
    calls::*,
    fields::{BadReply, Pass, sane},
    replies::*,
};
use self::{
    fields::Read as _,
    text::{Assembly, Layout, assemble},
};
use super::Ask;
use crate::{
    classify::verdict::Verdict,
    limiter::{
        cooldown::{Answer, Named, Report as Reporting},
        learn::{KnownRate, Learn, RateOverride},
        policy::{CooldownPolicy, Limits},
    },
    rules::Rule,
    runtime::clock,
};

/// A script, and the digest by which EVALSHA names it.
#[derive(Debug)]
pub(super) struct Script {
    /// For messages and metrics.
    pub(super) name: &'static str,
    /// The whole text.
    pub(super) text: String,
    /// SHA-1 of the text, in hex.
    pub(super) digest: String,
    /// The fields of its keys, arguments and reply.
    layout: Layout,
    /// The fields and constants that it uses.
    #[cfg(test)]
    used: std::collections::BTreeSet<String>,
}

impl Script {
    /// The script of `C`, from its files.
    fn new<C: Call>(name: &'static str, files: &[&str]) -> Self {
        let mut layout = Layout::default();
        C::Keys::fields("", &mut layout.keys);
        C::Arguments::fields("", &mut layout.arguments);
        C::Reply::fields("", &mut layout.reply);
        let Assembly { text, used } = assemble(files, &layout).unwrap_or_else(|mistake| {
            unreachable!("a test assembles the script `{name}`: {mistake}")
        });
        let digest = fred::util::sha1_hash(&text);
        #[cfg(not(test))]
        drop(used);
        Self {
            name,
            text,
            digest,
            layout,
            #[cfg(test)]
            used,
        }
    }
}

/// The position of an argument of a script, for servers that inspect calls.
#[must_use]
pub fn argument(script: &str, name: &str) -> Option<usize> {
    let script = all().into_iter().find(|known| known.name == script)?;
    script.layout.arguments.iter().position(|field| field.name == name)
}

/// The values of keys or arguments.
pub(super) fn values(fields: impl Pass) -> Vec<String> {
    let mut values = Vec::new();
    fields.pass(&mut values);
    values
}

/// Reads the reply to a call.
pub(super) fn read<C: Call>(reply: Value) -> Result<C::Reply, BadReply> {
    C::Reply::reply(C::script().name, reply)
}

/// The arguments that depend only on the rule; made once per rule and scope.
#[derive(Debug, Clone)]
pub(super) struct RuleArguments {
    limits: LimitFields,
    each_user: Option<LimitFields>,
    policy: PolicyFields,
    learn: LearnFields,
    cools: bool,
    own: bool,
}

/// A member's knowledge of a scope, for a store that may have lost it.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    /// The windows of the quotas as last known.
    pub(super) windows: String,
    /// Its decisions while the store was away.
    pub(super) away: String,
    /// Its latest ticket.
    pub(super) latest: String,
    /// The epoch of that ticket.
    pub(super) latest_epoch: u64,
    /// The memory of the rule that it knows.
    pub(super) memory: i64,
    /// Members that it knows of.
    pub(super) fleet: u32,
    /// When it gives up waiting for the reply; 0 = it does not know the store's time.
    pub(super) expires: i64,
}

impl RuleArguments {
    pub(super) fn new(rule: &Rule, own: bool) -> Self {
        Self {
            limits: limits(&rule.limits),
            each_user: rule.each_user.as_ref().map(limits),
            policy: policy(rule.cooldown.as_ref()),
            learn: learn(rule.limits.learn.as_ref()),
            cools: rule.cooldown.is_some(),
            own,
        }
    }

    /// Whether its users have limits of their own.
    pub(super) fn limits_users(&self) -> bool {
        self.each_user.is_some()
    }

    pub(super) fn take(&self, ask: &Ask, member: &Arc<str>, knows: Knowledge) -> TakeArguments {
        let returned: Vec<String> = ask.returned.iter().map(i64::to_string).collect();
        let Knowledge { windows, away, latest, latest_epoch, memory, fleet, expires } = knows;
        TakeArguments {
            wanted: ask.wanted,
            held: ask.held,
            bound: ask.bound,
            lease: ask.lease,
            member: Arc::clone(member),
            drain: ask.drain,
            void: ask.void,
            expires,
            returned: returned.join(","),
            epoch: ask.known.epoch,
            phase: ask.known.phase,
            holds_probe: ask.known.holds_probe,
            own: self.own,
            limits: self.limits.clone(),
            cools: self.cools,
            policy: self.policy.clone(),
            learned: ask.learned,
            learn: self.learn.clone(),
            windows,
            away,
            latest,
            latest_epoch,
            memory,
            fleet,
            user: self.each_user.clone().filter(|_| ask.user.is_some()),
        }
    }

    /// The arguments that a forecast needs of this rule.
    pub(super) fn when(
        &self,
        has_user: bool,
        parallel: Option<u32>,
        scope: Vec<WhenScope>,
    ) -> WhenArguments {
        let Self { limits, policy, learn, cools, each_user, .. } = self.clone();
        let user = each_user.filter(|_| has_user).unwrap_or_else(|| self::limits(&Limits::NONE));
        let parallel = parallel.unwrap_or(0);
        WhenArguments { limits, user, parallel, cools, policy, learn, scope }
    }

    pub(super) fn rate(
        &self,
        change: RateOverride,
        learned: KnownRate,
        member: &Arc<str>,
        news: NewsFields,
    ) -> RateArguments {
        let (action, rate, frozen) = match change {
            RateOverride::Set { rate, frozen } => ("set", rate, frozen),
            RateOverride::Forget => ("forget", None, None),
        };
        let Self { limits, policy, learn, .. } = self.clone();
        RateArguments {
            member: Arc::clone(member),
            action,
            rate: or_empty(rate),
            frozen: or_empty(frozen.map(u8::from)),
            limits,
            learned,
            learn,
            news,
            policy,
        }
    }

    pub(super) fn report(
        &self,
        report: &Reporting,
        member: &Arc<str>,
        news: NewsFields,
    ) -> ReportArguments {
        let (answer, weight, retry_after, sure, letter) = match report.answer {
            Answer::Ok => ("ok", 0.0, 0, false, None),
            Answer::Block { weight, retry_after, sure, verdict } => {
                ("block", weight, retry_after, sure, Some(verdict.letter()))
            }
            Answer::Silence { weight, verdict } => {
                ("silence", weight, 0, false, Some(verdict.letter()))
            }
            Answer::Refusal { weight } => ("refusal", weight, 0, false, Some(Verdict::Ok.letter())),
            Answer::Nothing => ("nothing", 0.0, 0, false, None),
        };
        let Named { ceiling, hold } = report.named.unwrap_or_default();
        ReportArguments {
            member: Arc::clone(member),
            epoch: report.epoch,
            probe: report.probe,
            answer,
            weight,
            retry_after,
            oks: report.oks,
            draw: report.draw,
            sure,
            kind: or_empty(letter),
            named: or_empty(ceiling.map(|named| named.rate)),
            lasts: ceiling.map_or(0, |named| named.lasts),
            hold: hold.unwrap_or(0),
            most_errors: report.error.map_or(0, |limit| limit.tokens),
            error_window: report.error.map_or(0, |limit| clock::micros(limit.window)),
            load: report.load.map_or_else(String::new, tally),
            news,
            policy: self.policy.clone(),
        }
    }

    pub(super) fn set(
        &self,
        action: &'static str,
        length: i64,
        member: &Arc<str>,
        news: NewsFields,
    ) -> SetArguments {
        let policy = self.policy.clone();
        SetArguments { member: Arc::clone(member), action, length, news, policy }
    }
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn limits(limits: &Limits) -> LimitFields {
    let quotas: Vec<String> = limits
        .quotas
        .iter()
        .map(|quota| format!("{}:{}", quota.tokens, clock::micros(quota.window)))
        .collect();
    LimitFields {
        rate: or_empty(limits.rate),
        burst: limits.burst,
        cost: limits.cost,
        quotas: quotas.join(","),
    }
}

fn learn(learn: Option<&Learn>) -> LearnFields {
    LearnFields {
        start: or_empty(learn.map(|learn| learn.start)),
        floor: or_empty(learn.map(|learn| learn.floor)),
        back_off: or_empty(learn.map(|learn| learn.back_off)),
        patience: or_empty(learn.map(|learn| learn.patience)),
    }
}

/// All zero for a rule without a cooldown.
fn policy(policy: Option<&CooldownPolicy>) -> PolicyFields {
    let micros = |of: fn(&CooldownPolicy) -> std::time::Duration| {
        policy.map_or(0, |policy| clock::micros(of(policy)))
    };
    let number = |of: fn(&CooldownPolicy) -> f64| policy.map_or(0.0, of).to_string();
    PolicyFields {
        after: number(|policy| policy.after),
        share: number(|policy| policy.ratio.map_or(0.0, |ratio| ratio.share)),
        of: policy.and_then(|policy| policy.ratio).map_or(0, |ratio| ratio.of),
        shortest: micros(|policy| policy.length.0),
        longest: micros(|policy| policy.length.1),
        forget_after: micros(|policy| policy.forget_after),
        probe: policy.is_some_and(|policy| policy.probe),
        grow: number(|policy| policy.grow),
        max: micros(|policy| policy.max),
        respect_retry_after: policy.is_some_and(|policy| policy.respect_retry_after),
        ramp: micros(|policy| policy.ramp),
    }
}
