//! The scripts of `lua/`, typed: their text, their arguments, their replies (`reply`).

mod reply;

pub(super) use self::reply::{
    BadReply, forecasts, granted, members, memory, peeked, reported, sane, set, slots, steered,
    surveyed,
};
use super::Ask;
use crate::{
    limiter::{
        cooldown::{Answer, KnownPhase, Named, Report},
        learn::{Hand, Known, Learn},
        load::Tally,
        policy::{CooldownPolicy, Limits},
    },
    rules::Rule,
    runtime::clock,
};

/// A script and the digest by which EVALSHA names it.
#[derive(Debug)]
pub(super) struct Script {
    /// For messages and metrics.
    pub(super) name: &'static str,
    /// The whole text.
    pub(super) text: &'static str,
    /// SHA-1 of the text, in hex.
    pub(super) digest: String,
}

/// All scripts.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) take: Script,
    pub(super) report: Script,
    pub(super) set: Script,
    pub(super) rate: Script,
    pub(super) memory: Script,
    pub(super) slots: Script,
    pub(super) peek: Script,
    pub(super) when: Script,
    pub(super) members: Script,
    pub(super) survey: Script,
    pub(super) announce: Script,
    pub(super) roster: Script,
}

macro_rules! script {
    ($name:literal, $($file:literal),+) => {{
        let text = concat!($(include_str!(concat!("../../lua/", $file)), "\n"),+);
        Script { name: $name, text, digest: fred::util::sha1_hash(text) }
    }};
}

/// The script that every request costs.
fn take() -> Script {
    script!(
        "take",
        "lib/clock.lua",
        "lib/shares.lua",
        "lib/load.lua",
        "lib/learn.lua",
        "lib/bucket.lua",
        "lib/memory.lua",
        "lib/recall.lua",
        "lib/away.lua",
        "lib/errors.lua",
        "lib/cooldown.lua",
        "take.lua"
    )
}

/// The script that divides `parallel` among members.
fn allot() -> Script {
    script!(
        "slots",
        "lib/clock.lua",
        "lib/news.lua",
        "lib/memory.lua",
        "lib/slots.lua",
        "slots.lua"
    )
}

/// The script in which members say what they know to a store that has lost its memory.
fn recover() -> Script {
    script!("memory", "lib/clock.lua", "lib/news.lua", "lib/memory.lua", "memory.lua")
}

/// The script that reports what came back.
fn report() -> Script {
    script!(
        "report",
        "lib/clock.lua",
        "lib/news.lua",
        "lib/shares.lua",
        "lib/load.lua",
        "lib/errors.lua",
        "lib/cooldown.lua",
        "report.lua"
    )
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            take: take(),
            report: report(),
            set: script!(
                "set",
                "lib/clock.lua",
                "lib/news.lua",
                "lib/shares.lua",
                "lib/load.lua",
                "lib/errors.lua",
                "lib/cooldown.lua",
                "override.lua"
            ),
            rate: script!(
                "rate",
                "lib/clock.lua",
                "lib/news.lua",
                "lib/shares.lua",
                "lib/load.lua",
                "lib/learn.lua",
                "lib/bucket.lua",
                "lib/errors.lua",
                "lib/cooldown.lua",
                "rate.lua"
            ),
            memory: recover(),
            slots: allot(),
            peek: script!(
                "peek",
                "lib/clock.lua",
                "lib/shares.lua",
                "lib/load.lua",
                "lib/errors.lua",
                "lib/cooldown.lua",
                "peek.lua"
            ),
            when: script!(
                "when",
                "lib/clock.lua",
                "lib/shares.lua",
                "lib/load.lua",
                "lib/learn.lua",
                "lib/bucket.lua",
                "lib/memory.lua",
                "lib/errors.lua",
                "lib/cooldown.lua",
                "when.lua"
            ),
            members: script!("members", "lib/clock.lua", "members.lua"),
            survey: script!(
                "survey",
                "lib/clock.lua",
                "lib/shares.lua",
                "lib/load.lua",
                "lib/learn.lua",
                "lib/errors.lua",
                "lib/cooldown.lua",
                "survey.lua"
            ),
            announce: script!("announce", "lib/clock.lua", "announce.lua"),
            roster: script!("roster", "lib/clock.lua", "roster.lua"),
        }
    }
}

/// The part of the arguments that only depends on the rule; made once per rule and scope.
#[derive(Debug, Clone)]
pub(super) struct RuleArguments {
    limits: [String; 4],
    each_user: Option<[String; 4]>,
    policy: [String; 11],
    learn: [String; 4],
    cools: bool,
    own: bool,
}

/// What a member tells the store of a scope (`lua/take.lua`, arguments 32 to 36 and 38).
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The windows of the quotas, as it heard of them.
    pub(super) windows: String,
    /// What it did while the store was away.
    pub(super) away: String,
    /// Its latest ticket.
    pub(super) latest: String,
    /// The epoch of that.
    pub(super) epoch: u64,
    /// The memory of the rule that it knows of.
    pub(super) since: i64,
    /// Members that it knows of.
    pub(super) fleet: u32,
}

impl RuleArguments {
    pub(super) fn new(rule: &Rule, own: bool) -> Self {
        Self {
            limits: limits(&rule.limits),
            each_user: rule.each_user.as_ref().map(limits),
            policy: rule.cooldown.as_ref().map_or_else(|| [(); 11].map(|()| flag(false)), policy),
            learn: learn(rule.limits.learn.as_ref()),
            cools: rule.cooldown.is_some(),
            own,
        }
    }

    /// Whether its users have limits of their own.
    pub(super) fn limits_users(&self) -> bool {
        self.each_user.is_some()
    }

    /// `told`: what the member knows of the bucket.
    pub(super) fn take(&self, ask: &Ask, member: &str, told: Told) -> Vec<String> {
        let returned: Vec<String> = ask.returned.iter().map(i64::to_string).collect();
        let mut arguments = vec![
            ask.wanted.to_string(),
            ask.held.to_string(),
            ask.bound.to_string(),
            ask.lease.to_string(),
            member.to_owned(),
            first_of(ask),
            returned.join(","),
            ask.known.epoch.to_string(),
            phase(ask.known.phase),
            flag(self.own),
        ];
        arguments.extend(self.limits.iter().cloned());
        arguments.push(flag(self.cools));
        arguments.extend(self.policy.iter().cloned());
        arguments.push(known(ask.learned));
        arguments.extend(self.learn.iter().cloned());
        arguments.extend([told.windows, told.away, told.latest]);
        arguments.extend([told.since.to_string(), told.fleet.to_string()]);
        arguments.extend([flag(ask.known.holds_probe), told.epoch.to_string()]);
        if let (Some(limits), Some(_)) = (&self.each_user, &ask.user) {
            arguments.extend(limits.iter().cloned());
        }
        arguments
    }

    /// For a look at scopes of the rule; [`when_scope`] follows for each of them.
    pub(super) fn when(&self) -> Vec<String> {
        let mut arguments = self.limits.to_vec();
        arguments.push(flag(self.cools));
        arguments.extend(self.policy.iter().cloned());
        arguments.extend(self.learn.iter().cloned());
        arguments
    }

    pub(super) fn rate(&self, hand: Hand, knows: Known, news: [&str; 4]) -> Vec<String> {
        let (word, rate, frozen) = match hand {
            Hand::Set { rate, frozen } => ("set", rate, frozen),
            Hand::Forget => ("forget", None, None),
        };
        let mut arguments = vec![
            word.to_owned(),
            rate.map_or_else(String::new, |rate| rate.to_string()),
            frozen.map_or_else(String::new, flag),
        ];
        arguments.extend(news.map(str::to_owned));
        arguments.extend(self.limits.iter().cloned());
        arguments.extend(self.policy.iter().cloned());
        arguments.push(known(knows));
        arguments.extend(self.learn.iter().cloned());
        arguments
    }

    pub(super) fn report(&self, report: &Report, news: [&str; 4]) -> Vec<String> {
        let (word, weight, retry_after, sure, letter) = match report.answer {
            Answer::Ok => ("ok", 0.0, 0, false, None),
            Answer::Block { weight, retry_after, sure, verdict } => {
                ("block", weight, retry_after, sure, Some(verdict.letter()))
            }
            Answer::Silence { weight, verdict } => {
                ("silence", weight, 0, false, Some(verdict.letter()))
            }
            Answer::Nothing => ("nothing", 0.0, 0, false, None),
        };
        let mut arguments = vec![
            report.epoch.to_string(),
            report.probe.to_string(),
            word.to_owned(),
            weight.to_string(),
            retry_after.to_string(),
            report.oks.to_string(),
            report.draw.to_string(),
            flag(sure),
            letter.map_or_else(String::new, String::from),
        ];
        arguments.extend(news.map(str::to_owned));
        let Named { ceiling, hold } = report.named.unwrap_or_default();
        arguments.push(ceiling.map_or_else(String::new, |named| named.rate.to_string()));
        arguments.push(ceiling.map_or(0, |named| named.lasts).to_string());
        arguments.push(hold.unwrap_or(0).to_string());
        arguments.push(report.error.map_or(0, |limit| limit.tokens).to_string());
        arguments.push(report.error.map_or(0, |limit| clock::micros(limit.window)).to_string());
        arguments.push(report.load.map_or_else(String::new, tally));
        arguments.extend(self.policy.iter().cloned());
        arguments
    }

    pub(super) fn set(&self, word: &str, length: i64, news: [&str; 4]) -> Vec<String> {
        let mut arguments = vec![word.to_owned(), length.to_string()];
        arguments.extend(news.map(str::to_owned));
        arguments.extend(self.policy.iter().cloned());
        arguments
    }
}

/// One scope in the arguments of `lua/when.lua`.
pub(super) fn when_scope(own: bool, knows: Known) -> [String; 2] {
    [flag(own), known(knows)]
}

fn phase(known: KnownPhase) -> String {
    match known {
        KnownPhase::Open => "open".to_owned(),
        KnownPhase::Cooling(left) => format!("cooling:{left}"),
        KnownPhase::Probing(left) => format!("probing:{left}"),
    }
}

/// What is to be done with the bucket before it grants.
fn first_of(ask: &Ask) -> String {
    (u8::from(ask.drain) + 2 * u8::from(ask.void)).to_string()
}

fn flag(on: bool) -> String {
    if on { "1".to_owned() } else { "0".to_owned() }
}

fn limits(limits: &Limits) -> [String; 4] {
    let quotas: Vec<String> = limits
        .quotas
        .iter()
        .map(|quota| format!("{}:{}", quota.tokens, clock::micros(quota.window)))
        .collect();
    [
        limits.rate.map_or_else(String::new, |rate| rate.to_string()),
        limits.burst.to_string(),
        limits.cost.to_string(),
        quotas.join(","),
    ]
}

/// Empty where nothing is learned.
fn learn(learn: Option<&Learn>) -> [String; 4] {
    let Some(learn) = learn else { return [(); 4].map(|()| String::new()) };
    [
        learn.start.to_string(),
        learn.floor.to_string(),
        learn.back_off.to_string(),
        learn.patience.to_string(),
    ]
}

/// What a member knows of a learned rate: turn, rate, mark, frozen.
fn known(known: Known) -> String {
    let Known { turn, rate, mark, frozen, .. } = known;
    format!("{turn} {rate} {mark} {}", u8::from(frozen))
}

/// What a member has counted of the load: how long, sent, answered, failed, late, own time, quickest page.
fn tally(tally: Tally) -> String {
    let Tally { over, sent, answered, failed, late, own, quickest } = tally;
    format!("{over} {sent} {answered} {failed} {late} {own} {quickest}")
}

fn policy(policy: &CooldownPolicy) -> [String; 11] {
    [
        policy.after.to_string(),
        policy.ratio.map_or(0.0, |ratio| ratio.share).to_string(),
        policy.ratio.map_or(0, |ratio| ratio.of).to_string(),
        clock::micros(policy.length.0).to_string(),
        clock::micros(policy.length.1).to_string(),
        clock::micros(policy.forget_after).to_string(),
        flag(policy.probe),
        policy.grow.to_string(),
        clock::micros(policy.max).to_string(),
        flag(policy.respect_retry_after),
        clock::micros(policy.ramp).to_string(),
    ]
}
