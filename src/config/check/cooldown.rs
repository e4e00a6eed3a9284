//! The cooldown of a rule.

use std::time::Duration;

use crate::{
    classify::verdict::Verdict,
    config::{
        cursor::Cursor,
        keys::SILENCE,
        range::{self, Ranged},
        section::Reader,
        units::{self, Read, Wrong, quote},
    },
    limiter::policy::{CooldownPolicy, Split, Weights},
};

/// Reads `cooldown`; `None` for `off`.
pub(super) fn read(rule: &Reader<'_>, per: Split) -> Option<CooldownPolicy> {
    let cursor = rule.cursor("cooldown")?;
    if cursor.is_word("off") {
        return None;
    }
    let section = cursor.open();
    let length: (Duration, Duration) = section.get("for");
    let max: Duration = section.get("max");
    if length.1 > max && !section.is_wrong("for") {
        let message = "`for` can be longer than `max`";
        let help = if section.has("max") {
            "raise `max`, or shorten `for`"
        } else {
            "add a `max` that is at least as long (the default is 10m)"
        };
        section.wrong(if section.has("for") { "for" } else { "max" }, Wrong::new(message, help));
    }
    let policy = CooldownPolicy {
        per: section.optional_word("per").unwrap_or(per),
        after: section.get("after"),
        ratio: section.unless("ratio", "off", units::ratio),
        silence: section.unless("silence", "off", |text| Ranged::parse(&SILENCE, text)),
        on: section.cursor("on").map_or_else(Weights::default, |cursor| weights(&cursor)),
        length,
        forget_after: section.get("forget_after"),
        probe: section.get("probe"),
        grow: section.get("grow"),
        max,
        respect_retry_after: section.get("respect_retry_after"),
        ramp: section.get("ramp"),
    };
    if section.has("grow") && !policy.probe {
        let help = "drop `grow`, or `probe: false`";
        section.warn("grow", Wrong::new("`grow` has no effect without a probe", help));
    }
    Some(policy)
}

/// What counts as a block: a verdict or a range of statuses.
enum Block {
    Verdict(Verdict),
    Status(u16, u16),
}

fn weights(cursor: &Cursor<'_>) -> Weights {
    let mut weights = Weights::default();
    let mut add = |block, weight| match block {
        Block::Verdict(verdict) => weights.verdicts.push((verdict, weight)),
        Block::Status(from, to) => weights.statuses.push((from, to, weight)),
    };
    if cursor.is_map() {
        for (name, entry) in cursor.entries() {
            let weight = entry.scalar(|text| f64::parse(entry.kind, text));
            match block(&name.text) {
                Ok(block) => add(block, weight.unwrap_or(1.0)),
                Err(wrong) => entry.wrong_name(&name, wrong),
            }
        }
    } else {
        for item in cursor.list() {
            if let Some(block) = item.scalar(block) {
                add(block, 1.0);
            }
        }
    }
    // The narrowest range decides (`503` before `5xx`), and the order of the file does not matter.
    weights.verdicts.sort_by_key(|(verdict, _)| *verdict);
    weights.statuses.sort_by_key(|(from, to, _)| (to - from, *from));
    if cursor.is_empty() {
        cursor.wrong(Wrong::new(
            "no verdict is a block",
            "list the blocks, or write `cooldown: off`",
        ));
    }
    weights
}

fn block(text: &str) -> Read<Block> {
    if text == "ok" {
        let help = "list a status instead, such as `5xx`";
        return Err(Wrong::new("`ok` is not a block", help));
    }
    if let Ok(verdict) = text.parse() {
        return Ok(Block::Verdict(verdict));
    }
    if let Ok((from, to)) = units::status(text) {
        return Ok(Block::Status(from, to));
    }
    let words = Verdict::ALL.iter().map(|verdict| verdict.as_str()).filter(|word| *word != "ok");
    let help = match range::did_you_mean(text, words.clone()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!(
            "write {}, or a status such as `503` or `5xx`",
            words.collect::<Vec<_>>().join(", ")
        ),
    };
    Err(Wrong::new(format!("{} is neither a verdict nor a status", quote(text)), help))
}
