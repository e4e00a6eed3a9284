//! `hours: "22:00-06:00 Europe/Berlin"`: the time of day at which a rule's requests may be sent.
//!
//! Times are wall-clock times in the zone, so a rule for the night stays in the night when clocks
//! change. An hour that is skipped counts as past, and a repeated hour counts twice.

use std::time::Duration;

use jiff::{Timestamp, civil::Time, tz::TimeZone};

use crate::runtime::clock;

/// A part of each day.
#[derive(Debug, Clone, PartialEq)]
pub struct Hours {
    from: Time,
    /// Excluded; before `from` if the hours include midnight.
    to: Time,
    zone: TimeZone,
}

impl Hours {
    /// From one time of day until another in a zone; `None` if they are equal.
    #[must_use]
    pub fn new(from: Time, to: Time, zone: TimeZone) -> Option<Self> {
        (from != to).then_some(Self { from, to, zone })
    }

    /// How long until requests may be sent; `None` if they may be sent now.
    #[must_use]
    pub fn opens_in(&self) -> Option<Duration> {
        // After the calendar's last year the rule is open.
        let now = i64::try_from(clock::unix_ms()).ok()?;
        self.opens_after(Timestamp::from_millisecond(now).ok()?)
    }

    /// The same at another time.
    fn opens_after(&self, now: Timestamp) -> Option<Duration> {
        if self.is_open(now) {
            return None;
        }
        // The wall clock reaches `from` on that day, or skips it.
        let today = self.zone.to_datetime(now).date();
        let days = [Ok(today), today.tomorrow(), today.tomorrow().and_then(|day| day.tomorrow())];
        let passes = days.into_iter().flatten().flat_map(|day| {
            let ambiguous = self.zone.to_ambiguous_timestamp(day.to_datetime(self.from));
            [ambiguous.earlier(), ambiguous.later()].into_iter().flatten()
        });
        let jumps = self.zone.following(now).take(2).map(|jump| jump.timestamp());
        let opens = passes.chain(jumps).filter(|at| *at > now && self.is_open(*at)).min()?;
        Duration::try_from(opens.duration_since(now)).ok()
    }

    fn is_open(&self, at: Timestamp) -> bool {
        let time = self.zone.to_datetime(at).time();
        if self.from < self.to {
            (self.from..self.to).contains(&time)
        } else {
            time >= self.from || time < self.to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(from: &str, to: &str, zone: &str) -> Hours {
        let time = |text: &str| text.parse().expect("a time");
        let zone = TimeZone::get(zone).expect("a zone");
        Hours::new(time(from), time(to), zone).expect("hours")
    }

    /// Minutes until it opens.
    fn opens(hours: &Hours, now: &str) -> Option<u64> {
        let wait = hours.opens_after(now.parse().expect("a moment"));
        wait.map(|wait| wait.as_secs() / 60)
    }

    #[test]
    fn a_night_reaches_over_midnight_and_its_end_is_not_part_of_it() {
        let night = hours("22:00", "06:00", "UTC");
        for (now, expected) in [
            ("2026-01-10T21:59:00Z", Some(1)),
            ("2026-01-10T22:00:00Z", None),
            ("2026-01-11T00:00:00Z", None),
            ("2026-01-11T05:59:59Z", None),
            ("2026-01-11T06:00:00Z", Some(16 * 60)),
        ] {
            assert_eq!(opens(&night, now), expected, "{now}");
        }
        let day = hours("09:30", "17:00", "UTC");
        assert_eq!(opens(&day, "2026-01-10T17:00:00Z"), Some(16 * 60 + 30));
        assert_eq!(opens(&day, "2026-01-10T09:30:00Z"), None);
    }

    #[test]
    fn the_wall_clock_of_the_zone_decides_in_summer_and_in_winter() {
        let night = hours("22:00", "06:00", "Europe/Berlin");
        assert_eq!(opens(&night, "2026-01-10T20:30:00Z"), Some(30), "UTC+1");
        assert_eq!(opens(&night, "2026-07-10T19:30:00Z"), Some(30), "UTC+2");
    }

    #[test]
    fn an_hour_that_the_clock_skips_counts_as_past() {
        // 2026-03-29 in Berlin: 01:59:59 is followed by 03:00:00, at 01:00 UTC.
        let early = hours("02:30", "04:00", "Europe/Berlin");
        assert_eq!(opens(&early, "2026-03-29T00:30:00Z"), Some(30));
        assert_eq!(opens(&early, "2026-03-29T01:00:00Z"), None);
        let skipped = hours("02:10", "02:50", "Europe/Berlin");
        assert_eq!(opens(&skipped, "2026-03-29T00:30:00Z"), Some(23 * 60 + 40), "the day after");
    }

    #[test]
    fn an_hour_that_comes_twice_counts_twice() {
        // 2026-10-25 in Berlin: 02:59:59 is followed by 02:00:00, at 01:00 UTC.
        let twice = hours("02:30", "02:45", "Europe/Berlin");
        assert_eq!(opens(&twice, "2026-10-25T00:00:00Z"), Some(30));
        assert_eq!(opens(&twice, "2026-10-25T00:30:00Z"), None);
        assert_eq!(opens(&twice, "2026-10-25T00:45:00Z"), Some(45), "the second time");
        assert_eq!(opens(&twice, "2026-10-25T01:30:00Z"), None);
        let late = hours("02:30", "06:00", "Europe/Berlin");
        assert_eq!(opens(&late, "2026-10-25T01:00:00Z"), Some(30), "the clock is set back");
    }
}
