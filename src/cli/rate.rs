//! `tidegate rate`: manual changes of a learned rate.

use http::Method;
use serde_json::{Value, json};

use super::{
    Global, Outcome,
    client::{Change, who},
    out::{Out, Style},
    table::per_time,
};
use crate::config;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A scope is the name of a rule, or RULE/KEY if the rule is split by domain or host. Learning continues from the \
rate that you set, unless it is frozen.

Examples:
  tidegate rate set shops/shop.example 90/m
  tidegate rate set shops 2/s --freeze
  tidegate rate thaw shops
  tidegate rate forget shops")]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set the rate of a scope on every member of the fleet, between the rule's floor and its ceiling
    Set {
        #[command(flatten)]
        change: Change,
        /// How fast, with a unit: 2/s, 90/m, 5000/h
        #[arg(value_parser = config::rate)]
        rate: f64,
        /// Keep to it, whatever happens
        #[arg(long)]
        freeze: bool,
    },
    /// Keep the rate of a scope fixed
    Freeze(Change),
    /// Let a frozen scope learn again
    Thaw(Change),
    /// Forget what a scope has learned; it restarts from the rule file
    Forget(Change),
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let (change, method, mut body) = match &args.action {
        Action::Set { change, rate, freeze: false } => {
            (change, Method::POST, json!({"rate": rate}))
        }
        Action::Set { change, rate, freeze: true } => {
            (change, Method::POST, json!({"rate": rate, "frozen": true}))
        }
        Action::Freeze(change) => (change, Method::POST, json!({"frozen": true})),
        Action::Thaw(change) => (change, Method::POST, json!({"frozen": false})),
        Action::Forget(change) => (change, Method::DELETE, json!({})),
    };
    body["who"] = json!(who());
    let answer = change.send(global, method, "rate", &body)?;
    let number = answer["rate"].as_f64().unwrap_or_default();
    let frozen = answer["frozen"] == Value::Bool(true);
    let (style, word) =
        if frozen { (Style::Warn, "is fixed at") } else { (Style::Good, "runs at") };
    let said = format!("{word} {}", per_time(number));
    out.line(format_args!("{} {}", change.named(&answer), out.paint(style, said)))?;
    Ok(Outcome::Success)
}

#[cfg(test)]
mod tests {
    use super::config::rate;

    #[test]
    fn rates_are_written_as_in_the_rule_file() {
        assert_eq!(rate("90/m"), Ok(1.5));
        for wrong in ["", "2", "2/x", "-1/s", "0/s", "auto"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
