//! `tidegate cooldown`: manual trips and clears.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::{
    Global, Outcome,
    client::{Change, who},
    out::{Out, Style},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A scope is the name of a rule, or RULE/KEY if the rule is split by domain or host.

Examples:
  tidegate cooldown trip shops --for 5m
  tidegate cooldown clear shops/shop.example")]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Pause a scope on every member of the fleet
    Trip {
        #[command(flatten)]
        change: Change,
        /// How long, with a unit: 30s, 5m, 1h [default: drawn from the rule's `for`]
        #[arg(long = "for", value_name = "TIME", value_parser = length)]
        length: Option<Duration>,
    },
    /// Resume a scope on every member of the fleet
    Clear(Change),
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    match &args.action {
        Action::Trip { change, length } => {
            let body = json!({"seconds": length.map(|length| length.as_secs_f64()), "who": who()});
            let answer = change.send(global, Method::POST, "cooldown", &body)?;
            let length = Duration::from_millis(answer["cooldown_ms"].as_u64().unwrap_or_default());
            let paused = out.paint(Style::Warn, format!("is paused for {}", span(length)));
            out.line(format_args!("{} {paused}", change.named(&answer)))?;
        }
        Action::Clear(change) => {
            let answer = change.send(global, Method::DELETE, "cooldown", &json!({"who": who()}))?;
            let resumed = out.paint(Style::Good, "is resumed");
            out.line(format_args!("{} {resumed}", change.named(&answer)))?;
        }
    }
    Ok(Outcome::Success)
}

/// A duration as people write it: a number and `s`, `m` or `h`.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("`{text}` is not a valid length: write a number and a unit, as in 30s, 5m or 1h")
    };
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let factor = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = number * factor;
    if !(1.0..=86_400.0).contains(&seconds) {
        return Err(format!("`{text}` is out of range: from 1s to 24h"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A duration with at most two units: `40 s`, `4 min 10 s`, `2 h 5 min`.
pub(super) fn span(length: Duration) -> String {
    let seconds = length.as_secs() + u64::from(length.subsec_millis() >= 500);
    let (big, big_unit, small, small_unit) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3_600 => (seconds / 60, "min", seconds % 60, "s"),
        _ => (seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
    };
    if small == 0 {
        format!("{big} {big_unit}")
    } else {
        format!("{big} {big_unit} {small} {small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_need_a_unit_and_a_sensible_size() {
        assert_eq!(length("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(length("1.5h"), Ok(Duration::from_secs(5_400)));
        for wrong in ["", "5", "m", "-5m", "0s", "25h", "NaNs", "infs", "5 мин"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_read_as_people_say_them() {
        let said = [0, 59, 60, 250, 7_500].map(|s| span(Duration::from_secs(s)));
        assert_eq!(said, ["0 s", "59 s", "1 min", "4 min 10 s", "2 h 5 min"]);
    }
}
