//! What was measured of whom, and how it stands beside what is aimed at.
//!
//! A ratio is the median of the rounds' own ratios. What the floor's second run differs from its first by is what the
//! run cannot tell apart: an aim that is nearer than that is called near, neither met nor missed.

use std::{collections::BTreeMap, fmt::Write as _};

use super::middle;

/// What was done, in words; the same words name it in the aims.
pub(crate) type What = &'static str;

pub(crate) const C1: What = "1 KB, 1 connection";
pub(crate) const C64: What = "1 KB, 64 connections";
pub(crate) const C512: What = "1 KB, 512 connections";
pub(crate) const HTML: What = "64 KB of HTML";
pub(crate) const IMAGE: What = "64 KB of an image";
pub(crate) const STREAM: What = "1 MB, streamed";
pub(crate) const SETUP: What = "a tunnel set up";
pub(crate) const TUNNELLED: What = "1 MiB through a tunnel";
pub(crate) const REQUEST: What = "an intercepted request";
pub(crate) const REQUEST2: What = "an intercepted request, HTTP/2";
pub(crate) const CONNECTION: What = "a new intercepted connection";
pub(crate) const HOST: What = "the same, for a new host";
pub(crate) const INTERCEPTED: What = "1 MiB through interception";
pub(crate) const IDLE: What = "an idle connection";
pub(crate) const HELD: What = "a held request";
pub(crate) const WAITING: What = "8,000 held, nothing happens";
pub(crate) const RELEASED: What = "8,000 held, released";

/// What of it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// Microseconds of CPU each, user and system, the proxy's whole process tree.
    Cpu,
    /// The same of its Redis.
    RedisCpu,
    /// So many a second.
    Rate,
    /// Milliseconds within which half are answered.
    P50,
    /// Milliseconds within which 99 of 100 are answered.
    P99,
    /// How many were not answered.
    Errors,
    /// KiB each.
    Memory,
    /// MiB by which a process was larger at its largest than before.
    Growth,
    /// Percent of one core.
    Core,
    /// How many were answered.
    Answered,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::RedisCpu => "CPU of Redis",
            Self::Rate => "requests/s",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Errors => "errors",
            Self::Memory => "memory",
            Self::Growth => "memory more",
            Self::Core => "% of a core",
            Self::Answered => "answered",
        }
    }
}

/// Figures by what, unit and proxy, one for each round.
#[derive(Debug, Default)]
pub(crate) struct Record(BTreeMap<(What, Unit, &'static str), Vec<f64>>);

impl Record {
    /// One more round's.
    pub(crate) fn add(&mut self, what: What, unit: Unit, proxy: &'static str, figure: f64) {
        self.0.entry((what, unit, proxy)).or_default().push(figure);
    }

    fn rounds(&self, what: What, unit: Unit, proxy: &'static str) -> &[f64] {
        self.0.get(&(what, unit, proxy)).map_or(&[], Vec::as_slice)
    }

    /// The median; not a number where nothing was measured.
    pub(crate) fn median(&self, what: What, unit: Unit, proxy: &'static str) -> f64 {
        middle(self.rounds(what, unit, proxy).to_vec())
    }

    /// The sum of all rounds'.
    pub(crate) fn total(&self, what: What, unit: Unit, proxy: &'static str) -> f64 {
        self.rounds(what, unit, proxy).iter().fold(0.0, |sum, figure| sum + figure)
    }

    /// Over another proxy's in the same round.
    pub(crate) fn ratio(
        &self,
        what: What,
        unit: Unit,
        proxy: &'static str,
        base: &'static str,
    ) -> f64 {
        let own = self.rounds(what, unit, proxy).iter();
        middle(own.zip(self.rounds(what, unit, base)).map(|(own, base)| own / base).collect())
    }
}

/// A bound, on a ratio to a proxy or on the figure itself.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64, &'static str),
    AtLeast(f64, &'static str),
    Plain(f64),
    None,
}

struct Aim {
    number: u8,
    what: What,
    unit: Unit,
    who: &'static str,
    must: Bound,
    goal: Bound,
}

use Bound::{AtLeast, AtMost, Plain};
use Unit::{Answered, Core, Cpu, Memory, P99, Rate, RedisCpu};

const fn aim(
    number: u8,
    what: What,
    unit: Unit,
    who: &'static str,
    must: Bound,
    goal: Bound,
) -> Aim {
    Aim { number, what, unit, who, must, goal }
}

const FLOOR: &str = "floor";
const FLOOR_REDIS: &str = "floor-redis";
const HAPROXY: &str = "haproxy";
const FULL: &str = "tidegate";
const BARE: &str = "tidegate-bare";
const REDIS: &str = "tidegate-redis";

const AIMS: [Aim; 21] = [
    aim(1, C64, Cpu, BARE, AtMost(1.10, FLOOR), AtMost(1.10, HAPROXY)),
    aim(2, C64, Cpu, FULL, AtMost(1.20, FLOOR), AtMost(1.10, FLOOR)),
    aim(3, C64, Cpu, REDIS, AtMost(1.15, FLOOR_REDIS), AtMost(1.08, FLOOR_REDIS)),
    aim(4, C64, Cpu, REDIS, AtMost(1.25, FLOOR), AtMost(1.15, FLOOR)),
    aim(4, C64, RedisCpu, REDIS, AtMost(0.20, FLOOR_REDIS), AtMost(0.05, FLOOR_REDIS)),
    aim(5, C64, Rate, REDIS, AtLeast(0.85, FLOOR_REDIS), AtLeast(0.90, FLOOR)),
    aim(5, C512, Rate, REDIS, AtLeast(0.85, FLOOR_REDIS), AtLeast(0.90, FLOOR)),
    aim(6, C64, P99, FULL, AtMost(1.30, FLOOR), AtMost(1.00, FLOOR)),
    aim(6, C512, P99, FULL, AtMost(1.30, FLOOR), AtMost(1.00, FLOOR)),
    aim(7, HTML, Cpu, FULL, AtMost(1.15, FLOOR), AtMost(1.00, HAPROXY)),
    aim(8, STREAM, Cpu, FULL, AtMost(1.12, FLOOR), AtMost(0.55, HAPROXY)),
    aim(9, SETUP, Cpu, FULL, AtMost(1.15, FLOOR), AtMost(1.05, FLOOR)),
    aim(9, TUNNELLED, Cpu, FULL, AtMost(0.70, FLOOR), AtMost(0.60, FLOOR)),
    aim(10, REQUEST, Cpu, FULL, AtMost(1.45, FLOOR), Bound::None),
    aim(11, CONNECTION, Rate, FULL, Bound::None, AtLeast(0.90, FLOOR)),
    aim(11, CONNECTION, Cpu, FULL, AtMost(1.25, FLOOR), AtMost(1.10, FLOOR)),
    aim(12, HOST, Cpu, FULL, AtMost(1.30, FLOOR), AtMost(1.10, FLOOR)),
    aim(13, IDLE, Memory, FULL, AtMost(1.15, FLOOR), AtMost(0.60, FLOOR)),
    aim(13, HELD, Memory, FULL, AtMost(0.60, FLOOR), AtMost(0.40, FLOOR)),
    aim(14, WAITING, Core, FULL, Plain(1.0), Bound::None),
    aim(14, RELEASED, Answered, FULL, AtLeast(1.0, "those held"), Bound::None),
];

/// The aims of which something was measured, as a table.
pub(crate) fn table(record: &Record) -> anyhow::Result<String> {
    let mut rows = String::new();
    for aim in AIMS {
        let Aim { number, what, unit, who, must, goal } = aim;
        if record.rounds(what, unit, who).is_empty() {
            continue;
        }
        let noise = record.ratio(what, unit, "floor-aa", FLOOR);
        let cells = [must, goal].map(|bound| stands(record, &aim, bound, noise)).concat();
        let noise = if noise.is_nan() { "–".to_owned() } else { format!("{noise:.2}") };
        writeln!(rows, "| {number} | {what}: {} | {who} |{cells} {noise} |", unit.name())?;
    }
    if rows.is_empty() {
        return Ok(rows);
    }
    Ok(format!(
        "\nMedians; the last column is the floor once more, over the floor.\n\n\
         | # | figure | of | must | is | goal | is | noise |\n|---:|---|---|---|---:|---|---:|---:|\n{rows}"
    ))
}

/// Two cells: the bound, and what was measured with what that means.
fn stands(record: &Record, aim: &Aim, bound: Bound, noise: f64) -> String {
    let (sign, at, base) = match bound {
        Bound::None => return " – | – |".to_owned(),
        AtMost(at, base) => ("≤", at, Some(base)),
        AtLeast(at, base) => ("≥", at, Some(base)),
        Plain(at) => ("≤", at, None),
    };
    let is = match base {
        Some(base) => record.ratio(aim.what, aim.unit, aim.who, base),
        None => record.median(aim.what, aim.unit, aim.who),
    };
    let over = if sign == "≤" { is / at } else { at / is };
    // A ratio may be off by as much as two runs of the same program were.
    let noise = if noise.is_nan() { 0.0 } else { (noise - 1.0).abs() };
    let word = if over.is_nan() {
        "not measured"
    } else if (over - 1.0).abs() < noise {
        "near"
    } else if over <= 1.0 {
        "met"
    } else {
        "missed"
    };
    let base = base.map(|base| format!(" × {base}")).unwrap_or_default();
    format!(" {sign} {at:.2}{base} | {is:.2} {word} |")
}
