//! `rate` and `learn` of a rule: the learned rate, and rules that cannot have one.

use crate::{
    config::{
        cursor::Cursor,
        diagnostics::Shown,
        keys::Kind,
        section::Reader,
        syntax_tree::Node,
        units::{self, Read, Wrong},
    },
    limiter::{
        learn::Learn,
        policy::{CooldownPolicy, Split},
    },
    runtime::clock,
};

/// The highest rate of `rate: auto`, in tokens per second: a bound, not a goal.
const AUTO_MOST: f64 = 1_000.0;
/// The initial rate of `rate: auto`, in tokens per second: hardly any site blocks it.
const AUTO_START: f64 = 0.5;
/// The lowest rate of `rate: auto`, in tokens per second. At one page in fifty seconds, the fleet
/// still notices when a wall is gone.
const AUTO_FLOOR: f64 = 0.02;
/// A configured rate is assumed to be at most this many times too high, unless `floor` says
/// otherwise.
const TOO_HIGH: f64 = 100.0;

/// The value of `rate`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ceiling {
    /// `auto`: the rate is learned without a ceiling.
    Auto,
    /// Tokens per second.
    Written(f64),
}

impl Ceiling {
    /// In tokens per second.
    pub(super) const fn rate(self) -> f64 {
        match self {
            Self::Auto => AUTO_MOST,
            Self::Written(rate) => rate,
        }
    }
}

/// Reads `rate`.
pub(super) fn ceiling(text: &str) -> Read<Ceiling> {
    if text == "auto" { Ok(Ceiling::Auto) } else { units::rate(text).map(Ceiling::Written) }
}

/// Reads `learn`; `None` if the rate is fixed, or there is none.
pub(super) fn read(
    rule: &Reader<'_>,
    ceiling: Option<Ceiling>,
    per: Split,
    cooldown: Option<&CooldownPolicy>,
) -> Option<Learn> {
    let cursor = rule.cursor("learn")?;
    let wanted = if cursor.is_map() || cursor.is_list() {
        cursor.diagnostics.record(&cursor.label, Shown::of(&Node::of_text("true"), false));
        true
    } else {
        Cursor { kind: &Kind::Flag, ..cursor.clone() }.scalar(units::flag)?
    };
    let auto = matches!(ceiling, Some(Ceiling::Auto));
    if !wanted {
        if auto {
            let help = "write a rate such as `3/s`, or remove `learn: false`";
            rule.wrong("rate", Wrong::new("`auto` needs a learned rate", help));
        }
        return None;
    }
    if let Some(wrong) = obstacle(rule, per, cooldown) {
        if rule.has("learn") {
            rule.wrong("learn", wrong);
        } else if auto {
            rule.wrong("rate", wrong);
        }
        return None;
    }
    let section = if cursor.is_map() { cursor.open() } else { cursor.open_empty() };
    Some(settings(&section, ceiling?))
}

/// Why nothing can be learned here.
fn obstacle(rule: &Reader<'_>, per: Split, cooldown: Option<&CooldownPolicy>) -> Option<Wrong> {
    if !rule.counts("rate") {
        let help = "add `rate` (the ceiling, or `auto`), or remove `learn`";
        return Some(Wrong::new("there is no rate to learn", help));
    }
    let Some(policy) = cooldown else {
        let help = "remove `cooldown: off`, or write a fixed rate and `learn: false`";
        return Some(Wrong::new("a rate is learned from cooldowns, and the rule has none", help));
    };
    (policy.per != per).then(|| {
        let message = "a rate is learned from its own cooldowns, but these are split differently";
        Wrong::new(message, "give `per` and `cooldown.per` the same value, or fix the rate")
    })
}

fn settings(section: &Reader<'_>, ceiling: Ceiling) -> Learn {
    let most = ceiling.rate();
    let (start, floor) = match ceiling {
        Ceiling::Auto => (AUTO_START, AUTO_FLOOR),
        Ceiling::Written(rate) => (rate, rate / TOO_HIGH),
    };
    let given = section.optional("floor", units::rate);
    let start = section.optional("start", units::rate).unwrap_or(start.max(given.unwrap_or(0.0)));
    let floor = given.unwrap_or(floor.min(start));
    if start > most {
        let help = "the rate is the ceiling: raise it, or start lower";
        section.wrong("start", Wrong::new("`start` is more than `rate`", help));
    }
    if floor > start {
        let help = "it could never be that slow: lower `floor`, or start higher";
        section.wrong("floor", Wrong::new("`floor` is more than `start`", help));
    }
    Learn {
        start,
        floor,
        back_off: section.get("back_off"),
        patience: clock::micros(section.get("patience")),
    }
}
