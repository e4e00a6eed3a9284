//! Parses the replies of the scripts, field by field and strictly. An unexpected shape, or an
//! impossible number, is a failure and not a grant.

use fred::types::Value;

use crate::{
    limiter::{
        bucket::{BATCH, LONG_AGO, Window},
        cooldown::{Blocks, Change, culprit},
        learn::{Known, Why},
    },
    store::{
        Granted, Peeked, Phase, Reported, SlotsGranted,
        forecast::{Closed, Forecast, Reading},
    },
};

/// Why a reply cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the script `{script}` answered something else than it should")]
pub(in crate::store) struct BadReply {
    script: &'static str,
}

/// Times are whole numbers in doubles, because Lua has no others. Larger ones would overflow.
const LATEST: i64 = 1 << 53;

/// Microseconds as a script can mean them.
pub(in crate::store) fn sane(micros: i64) -> Option<i64> {
    (-LATEST..=LATEST).contains(&micros).then_some(micros)
}

/// The start of a quota's window; one that has not begun lies long ago.
fn start(micros: i64) -> Option<i64> {
    (LONG_AGO - LATEST..=LATEST).contains(&micros).then_some(micros)
}

/// Reads the fields of a reply in order.
struct Fields {
    script: &'static str,
    values: std::vec::IntoIter<Value>,
}

impl Fields {
    fn of(script: &'static str, reply: Value) -> Self {
        Self { script, values: reply.into_array().into_iter() }
    }

    fn next(&mut self) -> Result<Value, BadReply> {
        self.values.next().ok_or(BadReply { script: self.script })
    }

    fn whole(&mut self) -> Result<i64, BadReply> {
        self.next()?.as_i64().ok_or(BadReply { script: self.script })
    }

    /// A moment or a length in microseconds.
    fn micros(&mut self) -> Result<i64, BadReply> {
        let script = self.script;
        self.whole().and_then(|micros| sane(micros).ok_or(BadReply { script }))
    }

    fn epoch(&mut self) -> Result<u64, BadReply> {
        u64::try_from(self.whole()?).map_err(|_| BadReply { script: self.script })
    }

    /// A rate, or a sum of weights.
    fn float(&mut self) -> Result<f64, BadReply> {
        let value = self.next()?.as_f64().filter(|value| value.is_finite());
        value.ok_or(BadReply { script: self.script })
    }

    fn windows(&mut self) -> Result<Vec<Window>, BadReply> {
        let bad = BadReply { script: self.script };
        let value = self.next()?;
        let text = value.as_str().ok_or_else(|| bad.clone())?;
        let window = |part: &str| {
            let (length, rest) = part.split_once(':')?;
            let (from, taken) = rest.split_once(':')?;
            let length = length.parse().ok().and_then(sane).filter(|length| *length > 0)?;
            let start = from.parse().ok().and_then(start)?;
            Some(Window { length, start, taken: taken.parse().ok()? })
        };
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| window(part).ok_or_else(|| bad.clone())).collect()
    }

    fn word<T: Copy>(&mut self, words: &[(&str, T)]) -> Result<T, BadReply> {
        let value = self.next()?;
        let found = words.iter().find(|(word, _)| value.as_str().is_some_and(|v| v == *word));
        found.map(|(_, meaning)| *meaning).ok_or(BadReply { script: self.script })
    }

    fn text(&mut self) -> Result<String, BadReply> {
        self.next()?.as_string().ok_or(BadReply { script: self.script })
    }

    fn known(&mut self) -> Result<Known, BadReply> {
        let (turn, rate, mark) = (self.epoch()?, self.float()?, self.float()?);
        let (frozen, why) = (self.whole()? == 1, self.whole()?);
        let why = usize::try_from(why).ok().and_then(|at| Why::ALL.get(at).copied());
        let why = why.ok_or(BadReply { script: self.script })?;
        Ok(Known { turn, rate, mark, frozen, why })
    }

    /// The rest: times, and after one minus how many more there are of it.
    fn tickets(self) -> Result<Vec<i64>, BadReply> {
        let bad = BadReply { script: self.script };
        let mut tickets = Vec::with_capacity(self.values.len());
        for value in self.values {
            let micros = value.as_i64().and_then(sane).ok_or_else(|| bad.clone())?;
            if micros >= 0 {
                tickets.push(micros);
                continue;
            }
            let same = tickets.last().copied().ok_or_else(|| bad.clone())?;
            let more = usize::try_from(-micros).map_err(|_| bad.clone())?;
            if tickets.len() + more > BATCH as usize {
                return Err(bad);
            }
            tickets.resize(tickets.len() + more, same);
        }
        Ok(tickets)
    }
}

/// The grants, and the memory of the rule in the store (0 = not read).
pub(in crate::store) fn granted(reply: Value) -> Result<(Granted, i64), BadReply> {
    let mut fields = Fields::of("take", reply);
    let granted = Granted {
        now: fields.micros()?,
        phase: fields.word(&[
            ("open", Phase::Open),
            ("cooling", Phase::Cooling),
            ("probing", Phase::Probing),
            ("probe", Phase::Probe),
        ])?,
        epoch: fields.epoch()?,
        come_back: fields.micros()?,
        user_is_over: fields.whole()? == 1,
        members: u32::try_from(fields.whole()?).unwrap_or(u32::MAX),
        streak: fields.float()?,
        rate: fields.float()?,
        windows: fields.windows()?,
        learned: fields.known()?,
        tickets: Vec::new(),
        alone: false,
    };
    let since = fields.micros()?;
    Ok((Granted { tickets: fields.tickets()?, ..granted }, since))
}

pub(in crate::store) fn reported(reply: Value) -> Result<Reported, BadReply> {
    let mut fields = Fields::of("report", reply);
    Ok(Reported {
        now: fields.micros()?,
        change: fields.word(&[
            ("none", Change::None),
            ("stale", Change::Stale),
            ("streak", Change::Streak),
            ("tripped", Change::Tripped),
            ("opened", Change::Opened),
            ("probe_lost", Change::ProbeLost),
        ])?,
        epoch: fields.epoch()?,
        until: fields.micros()?,
        streak: fields.float()?,
        length: fields.micros()?,
        cause: fields.text()?.parse().ok(),
        blocks: Blocks::of_letters(&fields.text()?),
    })
}

pub(in crate::store) fn set(reply: Value) -> Result<Reported, BadReply> {
    let mut fields = Fields::of("set", reply);
    let (now, epoch, until) = (fields.micros()?, fields.epoch()?, fields.micros()?);
    let length = if until > 0 { until - now } else { 0 };
    Ok(Reported { until, length, ..Reported::unchanged(now, epoch) })
}

pub(in crate::store) fn steered(reply: Value) -> Result<(i64, Known), BadReply> {
    let mut fields = Fields::of("rate", reply);
    Ok((fields.micros()?, fields.known()?))
}

/// The slots, and the memory of the rule that the store has.
pub(in crate::store) fn slots(reply: Value) -> Result<(SlotsGranted, i64), BadReply> {
    let mut fields = Fields::of("slots", reply);
    let granted = SlotsGranted {
        now: fields.micros()?,
        slots: u32::try_from(fields.whole()?).map_err(|_| BadReply { script: "slots" })?,
        contended: fields.whole()? == 1,
        come_back: fields.micros()?,
        alone: false,
    };
    Ok((granted, fields.micros()?))
}

/// The memory that the store has of a rule.
pub(in crate::store) fn memory(reply: Value) -> Result<i64, BadReply> {
    Fields::of("memory", reply).micros()
}

pub(in crate::store) fn peeked(reply: Value) -> Result<Peeked, BadReply> {
    look(&mut Fields::of("peek", reply))
}

/// The cooldown in the replies of `peek` and `survey`.
fn look(fields: &mut Fields) -> Result<Peeked, BadReply> {
    let (now, epoch, until) = (fields.micros()?, fields.epoch()?, fields.micros()?);
    let (probe_until, streak, peak) = (fields.micros()?, fields.float()?, fields.float()?);
    let (cause, blamed) = (fields.text()?.parse().ok(), fields.text()?);
    let named = Some(fields.float()?).filter(|rate| *rate > 0.0);
    Ok(Peeked {
        now,
        epoch,
        until,
        probe_until,
        streak,
        peak,
        cause,
        by: culprit(&blamed),
        blocks: Blocks::of_letters(&blamed),
        named,
    })
}

/// The number of members, whether the calling one was unknown, and the schema of the others if it
/// is another.
pub(in crate::store) fn members(reply: Value) -> Result<(u32, bool, String), BadReply> {
    let mut fields = Fields::of("members", reply);
    let bad = BadReply { script: "members" };
    let count = u32::try_from(fields.whole()?).map_err(|_| bad)?;
    Ok((count, fields.whole()? == 1, fields.text()?))
}

/// The cooldown, the learned rate and the waiting members of each scope.
pub(in crate::store) fn surveyed(reply: Value) -> Result<Vec<(Peeked, Known, u64)>, BadReply> {
    let scope = |entry: Value| {
        let mut fields = Fields::of("survey", entry);
        let cooldown = look(&mut fields)?;
        let learned = fields.known()?;
        let waiting = u64::try_from(fields.whole()?).unwrap_or(0);
        Ok((cooldown, learned, waiting))
    };
    let Value::Array(entries) = reply else { return Err(BadReply { script: "survey" }) };
    entries.into_iter().map(scope).collect()
}

/// When the next request of each scope could go.
pub(in crate::store) fn forecasts(reply: Value) -> Result<Vec<Forecast>, BadReply> {
    /// A function that says why a scope is closed.
    type Closing = fn(i64) -> Option<Closed>;
    let states: [(&str, Closing); 3] = [
        ("open", |_| None),
        ("cooling", |until| Some(Closed::Cooling(until))),
        ("probing", |lease| Some(Closed::Probing(lease))),
    ];
    let scope = |entry: Value| {
        let mut fields = Fields::of("when", entry);
        let (now, epoch) = (fields.micros()?, fields.epoch()?);
        let closed = fields.word(&states)?(fields.micros()?);
        let (hold, moment, by_rate) = (fields.micros()?, fields.micros()?, fields.micros()?);
        let rate = fields.float()?;
        let members = u32::try_from(fields.whole()?).unwrap_or(u32::MAX);
        Ok(Reading { now, epoch, closed, hold, moment, by_rate, rate, members }.into())
    };
    let Value::Array(entries) = reply else { return Err(BadReply { script: "when" }) };
    entries.into_iter().map(scope).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script's reply with these tickets.
    fn tickets(said: &[i64]) -> Result<Vec<i64>, BadReply> {
        let values: Vec<Value> = said.iter().map(|number| Value::Integer(*number)).collect();
        Fields::of("take", Value::Array(values)).tickets()
    }

    #[test]
    fn tickets_of_one_moment_are_counted_and_never_more_than_a_call_grants() {
        assert_eq!(tickets(&[]), Ok(vec![]));
        assert_eq!(tickets(&[7, 9]), Ok(vec![7, 9]));
        assert_eq!(tickets(&[7, -2, 9, -1]), Ok(vec![7, 7, 7, 9, 9]));
        assert_eq!(tickets(&[7, -999]).map(|all| all.len()), Ok(1_000));
        for wrong in [&[-1][..], &[7, -1_000], &[7, -500, 8, -500], &[7, -LATEST], &[7, i64::MIN]] {
            assert!(tickets(wrong).is_err(), "{wrong:?}");
        }
    }
}
