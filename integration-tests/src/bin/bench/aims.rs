//! The measurements of each proxy, and the goals that they are compared with.
//!
//! A ratio is the median of the ratios of the rounds. The difference between two runs of the floor
//! is the noise of the run. A result within the noise of its goal is "near", neither met nor
//! missed.

use std::{collections::BTreeMap, fmt::Write as _};

use super::middle;

/// The name of a load, also used by the goals.
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

/// The unit of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// Microseconds of CPU per request, user and system, of the proxy's whole process tree.
    Cpu,
    /// The same of its Redis.
    RedisCpu,
    /// Requests per second.
    Rate,
    /// Milliseconds until half of the requests had a response.
    P50,
    /// Milliseconds until 99 % of the requests had a response.
    P99,
    /// Requests without a response.
    Errors,
    /// KiB per connection or request.
    Memory,
    /// MiB between the peak size of a process and its size before.
    Growth,
    /// Percent of one core.
    Core,
    /// Requests with a response.
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

/// Measurements by load, unit and proxy, one per round.
#[derive(Debug, Default)]
pub(crate) struct Record(BTreeMap<(What, Unit, &'static str), Vec<f64>>);

impl Record {
    /// Adds the measurement of one round.
    pub(crate) fn add(&mut self, what: What, unit: Unit, proxy: &'static str, figure: f64) {
        self.0.entry((what, unit, proxy)).or_default().push(figure);
    }

    fn rounds(&self, what: What, unit: Unit, proxy: &'static str) -> &[f64] {
        self.0.get(&(what, unit, proxy)).map_or(&[], Vec::as_slice)
    }

    /// The median; NaN if nothing was measured.
    pub(crate) fn median(&self, what: What, unit: Unit, proxy: &'static str) -> f64 {
        middle(self.rounds(what, unit, proxy).to_vec())
    }

    /// The sum of all rounds.
    pub(crate) fn total(&self, what: What, unit: Unit, proxy: &'static str) -> f64 {
        self.rounds(what, unit, proxy).iter().fold(0.0, |sum, figure| sum + figure)
    }

    /// The ratio to another proxy, round by round.
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

/// A limit on a ratio to another proxy, or on the measurement itself.
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

/// The goals with a measurement, as a table.
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

/// Two cells: the limit, and the result with its meaning.
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
    // A ratio may be off by as much as two runs of the same program.
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
