//! The constants that the limiter and the scripts share. Lua uses them as `CONST.NAME`.

use crate::{
    limiter::{
        bucket,
        cooldown::{self, length, probes},
        errors,
        learn::{self, overload, scattered, wall},
        load, shares, slots,
    },
    runtime::clock,
    store::fallback,
};

/// Name and value of each, as Lua reads them.
pub(super) fn constants() -> Vec<(&'static str, String)> {
    let mut all = of_limits_and_load();
    all.extend(of_cooldowns());
    all.extend(of_learned_rate());
    all
}

fn of_limits_and_load() -> Vec<(&'static str, String)> {
    vec![
        ("HORIZON", bucket::HORIZON.to_string()),
        ("FIRST", bucket::FIRST.to_string()),
        ("BATCH", bucket::BATCH.to_string()),
        ("RETURNED", bucket::RETURNED.to_string()),
        ("LONG_AGO", bucket::LONG_AGO.to_string()),
        ("ERROR_SLOTS", errors::SLOTS.to_string()),
        ("SLOT_LEASE", slots::LEASE.to_string()),
        ("SETTLE", slots::SETTLE.to_string()),
        ("GRACE", clock::micros(fallback::GRACE).to_string()),
        ("SHARES_CHANCE", shares::CHANCE.to_string()),
        ("SHARES_MOST", shares::MOST.to_string()),
        ("SHARES_LEAST", shares::LEAST.to_string()),
        ("SHARES_FREQUENT", shares::FREQUENT.to_string()),
        ("SHARES_REFUSED", shares::REFUSED.to_string()),
        ("SHARES_FEW", shares::FEW.to_string()),
        ("SHARES_KNOWN_FROM", shares::KNOWN_FROM.to_string()),
        ("SHARES_HALVED_FROM", shares::HALVED_FROM.to_string()),
        ("SHARES_MANY", shares::MANY.to_string()),
        ("SHARES_ENOUGH", shares::ENOUGH.to_string()),
        ("SHARES_ENOUGH_SENT", shares::ENOUGH_SENT.to_string()),
        ("LOAD_WINDOW", load::WINDOW.to_string()),
        ("LOAD_ENOUGH", load::ENOUGH.to_string()),
        ("LOAD_SILENT", load::MINUTE.to_string()),
        ("LOAD_FAILURES", load::FAILURES.to_string()),
        ("LOAD_FAILING", load::FAILING.to_string()),
        ("LOAD_LATE", load::LATE.to_string()),
        ("LOAD_TIMES", load::TIMES.to_string()),
        ("LOAD_GRACE", load::GRACE.to_string()),
        ("LOAD_REMEMBERED", load::REMEMBERED.to_string()),
        ("LOAD_MOST", u32::MAX.to_string()),
    ]
}

fn of_cooldowns() -> Vec<(&'static str, String)> {
    vec![
        ("KINDS", cooldown::KINDS.to_string()),
        ("HOPELESS", cooldown::HOPELESS.to_string()),
        ("HOPELESS_GROW", cooldown::HOPELESS_GROW.to_string()),
        ("DAY", cooldown::DAY.to_string()),
        ("PROBE_LONG", probes::LONG.to_string()),
        ("PROBE_LATER", probes::LATER.to_string()),
        ("PROBE_AFTER", probes::AFTER.to_string()),
        ("PROBE_ROUND", list(&probes::ROUND)),
        ("PROBE_WARIEST", length::WARIEST.to_string()),
    ]
}

fn of_learned_rate() -> Vec<(&'static str, String)> {
    vec![
        ("LEARN_ABOVE", learn::ABOVE.to_string()),
        ("LEARN_APPROACH", learn::APPROACH.to_string()),
        ("LEARN_CLIMB", learn::CLIMB.to_string()),
        ("LEARN_CONFIRMED", learn::CONFIRMED.to_string()),
        ("LEARN_DRAINS", overload::DRAINS.to_string()),
        ("LEARN_EASED", learn::EASED.to_string()),
        ("LEARN_ECHO", learn::ECHO.to_string()),
        ("LEARN_EXCUSED", overload::EXCUSED.to_string()),
        ("LEARN_GROWS", overload::GROWS.to_string()),
        ("LEARN_HALF", learn::HALF.to_string()),
        ("LEARN_HOLD", learn::HOLD.to_string()),
        ("LEARN_LEAST", learn::LEAST.to_string()),
        ("LEARN_LITTLE", overload::LITTLE.to_string()),
        ("LEARN_LONGEST", learn::LONGEST.to_string()),
        ("LEARN_LONG_HOLD", learn::LONG_HOLD.to_string()),
        ("LEARN_MINUTE", learn::MINUTE.to_string()),
        ("LEARN_NEAR", learn::NEAR.to_string()),
        ("LEARN_NEW", overload::NEW.to_string()),
        ("LEARN_QUICK", learn::QUICK.to_string()),
        ("LEARN_RECENT", scattered::RECENT.to_string()),
        ("LEARN_STEP", learn::STEP.to_string()),
        ("LEARN_STRIDE", learn::STRIDE.to_string()),
        ("LEARN_TESTED_BELOW", scattered::TESTED_BELOW.to_string()),
        ("LEARN_USED", learn::USED.to_string()),
        ("LEARN_WHY", numbered(&learn::RateReason::ALL.map(learn::RateReason::as_str))),
        ("LEARN_WORTH", learn::WORTH.to_string()),
        ("WALL_FURTHER", wall::FURTHER.to_string()),
        ("WALL_IN_FLIGHT", wall::IN_FLIGHT.to_string()),
        ("WALL_KEPT", wall::KEPT.to_string()),
        ("WALL_LONG", wall::LONG.to_string()),
        ("WALL_LONGER", wall::LONGER.to_string()),
        ("WALL_LONGEST", wall::LONGEST.to_string()),
        ("WALL_WORTH", wall::WORTH.to_string()),
        ("WALL_ROUND", list(&wall::ROUND)),
        ("LEARNED_FOR", bucket::LEARNED_FOR.to_string()),
    ]
}

/// Words and their numbers, from 0, as a Lua table.
fn numbered(words: &[&str]) -> String {
    let numbers: Vec<_> = words.iter().zip(0..).map(|(word, n)| format!("{word} = {n}")).collect();
    format!("{{ {} }}", numbers.join(", "))
}

/// Microseconds as a Lua table.
fn list(numbers: &[i64]) -> String {
    let numbers: Vec<_> = numbers.iter().map(i64::to_string).collect();
    format!("{{ {} }}", numbers.join(", "))
}
