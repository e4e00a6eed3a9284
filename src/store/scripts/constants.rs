//! The constants that the limiter and the scripts share. Lua uses them as `CONST.NAME`.

use crate::{
    limiter::{bucket, cooldown, errors, load, shares, slots},
    runtime::clock,
    store::fallback,
};

/// Name and value of each, as Lua reads them.
pub(super) fn constants() -> Vec<(&'static str, String)> {
    vec![
        ("HORIZON", bucket::HORIZON.to_string()),
        ("FIRST", bucket::FIRST.to_string()),
        ("BATCH", bucket::BATCH.to_string()),
        ("RETURNED", bucket::RETURNED.to_string()),
        ("LONG_AGO", bucket::LONG_AGO.to_string()),
        ("KINDS", cooldown::KINDS.to_string()),
        ("HOPELESS", cooldown::HOPELESS.to_string()),
        ("HOPELESS_GROW", cooldown::HOPELESS_GROW.to_string()),
        ("DAY", cooldown::DAY.to_string()),
        ("ERROR_SLOTS", errors::SLOTS.to_string()),
        ("SLOT_LEASE", slots::LEASE.to_string()),
        ("SETTLE", slots::SETTLE.to_string()),
        ("GRACE", clock::micros(fallback::GRACE).to_string()),
        ("SHARES_CHANCE", shares::CHANCE.to_string()),
        ("SHARES_MOST", shares::MOST.to_string()),
        ("SHARES_LEAST", shares::LEAST.to_string()),
        ("SHARES_FREQUENT", shares::FREQUENT.to_string()),
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
