//! `tidegate top`: the table of `tidegate status`, drawn again and again. Ctrl-C ends it.

use std::{
    io::{self, IsTerminal as _},
    thread,
    time::Duration,
};

use http::Method;

use super::{
    Global, Outcome, Usage,
    client::{Admin, Token},
    fleet::Fleet,
    out::Out,
    status::table,
};
use crate::status::Status;

/// Home, then each line is cleared to its end as it is written, then what is below: no flicker, no blank moment.
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
const CLEAR_ALL: &str = "\u{1b}[2J";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidegate top
  tidegate top --every 5 --admin 10.0.0.7:9128
  tidegate top --store redis://10.0.0.5:6379")]
pub(super) struct Args {
    /// Seconds between two looks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    #[command(flatten)]
    token: Token,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    if !io::stdout().is_terminal() {
        let why = "`tidegate top` draws on a terminal; `tidegate status` prints once";
        return Err(Usage(why.into()).into());
    }
    let look: Box<dyn Fn() -> anyhow::Result<String>> = match Fleet::named(global)? {
        Some(fleet) => Box::new(move || fleet.table(out)),
        None => {
            let admin = Admin::new(global, &args.token)?;
            Box::new(move || {
                let answer = admin.ask(Method::GET, "/api/v1/status", None)?;
                Ok(table(&serde_json::from_value::<Status>(answer)?, out))
            })
        }
    };
    out.raw(CLEAR_ALL.as_bytes())?;
    loop {
        // It may be restarting; the next look tells.
        let frame = look().unwrap_or_else(|error| format!("{error:#}\n"));
        let lines: String = frame.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
        out.raw(format!("{HOME}{lines}{CLEAR_BELOW}").as_bytes())?;
        thread::sleep(Duration::from_secs(args.every));
    }
}
