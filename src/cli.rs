//! The command line: its options, and one file per command.
//!
//! Exit codes: 0 success, 1 negative result, 2 wrong usage or an invalid file. Output is for people
//! on a terminal; `--json` is for programs. Results go to standard output, errors and the log to
//! standard error.

pub mod app;
mod ca;
mod check;
mod client;
mod cooldown;
mod descriptors;
mod doctor;
mod env;
mod explain;
mod fleet;
mod learn_signature;
mod log;
mod man_pages;
mod out;
mod rate;
mod run;
mod status;
mod table;
mod terminal;
mod top;
mod which;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{
    Parser, Subcommand,
    error::{ContextKind, ContextValue},
};

use crate::config::{self, Loaded, Overrides, Problems};
use out::{Colour, Out};

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    about = "HTTP forward proxy that keeps a fleet of crawlers polite: one shared rate, one shared cooldown",
    after_help = EXAMPLES,
    max_term_width = 100
)]
pub struct Args {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

impl Args {
    /// Parses the command line of this process; wrong usage ends the process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::try_parse().unwrap_or_else(|mut error| {
            if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
                && Path::new(word).extension().is_some_and(|end| end == "yaml" || end == "yml")
            {
                let tip = format!("to run with this rule file, write `tidegate --config {word}`");
                let tip = ContextValue::StyledStrs(vec![tip.into()]);
                error.insert(ContextKind::Suggested, tip);
            }
            error.exit()
        })
    }
}

const EXAMPLES: &str = "\
Examples:
  tidegate                                 run with ./config/tidegate.yaml or the built-in defaults
  tidegate --config rules.yaml             run with a rule file
  tidegate --store redis://127.0.0.1:6379  run as a member of a fleet
  tidegate check rules.yaml                report all mistakes in a rule file
  eval \"$(tidegate env curl)\"              point this shell's programs at the proxy
  tidegate doctor                          check that this shell's programs use the proxy
  tidegate status                          show the fleet: members and scopes
  tidegate status --store redis://...      the same, directly from the store
  tidegate cooldown clear shops            resume a scope

Exit codes: 0 success, 1 negative result, 2 wrong usage or an invalid file.";

/// Options with the same meaning for every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
struct Global {
    /// The rule file [default: config/tidegate.yaml if it exists, otherwise built-in defaults]
    #[arg(long, short, global = true, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for clients; overrides the file's `listen`
    #[arg(long, global = true, value_name = "ADDR")]
    listen: Option<String>,
    /// Admin port to serve or to query; overrides the file's `admin`
    #[arg(long, global = true, value_name = "ADDR")]
    admin: Option<String>,
    /// Store; overrides the file's `store`: memory, redis://..., rediss://...
    #[arg(long, global = true, value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: Colour,
    /// Log more than the file's `log.level`: -v debug, -vv trace
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the proxy (the default)
    Run(run::Args),
    /// Check a rule file and report all mistakes, each with its place and a suggested fix
    Check(check::Args),
    /// Print the JSON Schema of the rule file, for editors
    Schema,
    /// Check a client's environment and say what is wrong with it
    Doctor(doctor::Args),
    /// Print the settings that point a client at the proxy and make it trust the CA
    Env(env::Args),
    /// Show the verdict of a saved response, and the reason
    Explain(explain::Args),
    /// Propose a signature from blocked and ordinary pages of one site
    LearnSignature(learn_signature::Args),
    /// Show the fleet: its members, and the state of each scope
    Status(status::Args),
    /// Trip or clear a cooldown
    Cooldown(cooldown::Args),
    /// Set, freeze, thaw or forget a learned rate
    Rate(rate::Args),
    /// Show the CA that clients of intercepting rules must trust
    Ca(ca::Args),
    /// Watch the fleet in the terminal
    Top(top::Args),
    /// Print a completion script for a shell
    Completions(man_pages::Completions),
    /// Print the manual page (roff), or write the pages of all commands
    Man(man_pages::Man),
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Success,
    Negative,
    BadFile,
}

/// Wrong usage or an invalid file: exit code 2. Every other error is 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Runs the command and returns its exit code.
#[must_use]
pub fn run(args: Args) -> ExitCode {
    let Args { global, command } = args;
    let out = Out::new(global.color);
    let result = match command {
        None => run::run(&global),
        Some(Command::Run(args)) => run::run(&args.over(global)),
        Some(Command::Check(args)) => check::run(&global, &args, &out),
        Some(Command::Schema) => check::schema(&out),
        Some(Command::Doctor(args)) => doctor::run(&global, &args, &out),
        Some(Command::Env(args)) => env::run(&global, &args, &out),
        Some(Command::Explain(args)) => explain::run(&global, &args, &out),
        Some(Command::LearnSignature(args)) => learn_signature::run(&global, &args, &out),
        Some(Command::Status(args)) => status::run(&global, &args, &out),
        Some(Command::Cooldown(args)) => cooldown::run(&global, &args, &out),
        Some(Command::Rate(args)) => rate::run(&global, &args, &out),
        Some(Command::Ca(args)) => ca::run(&global, &args, &out),
        Some(Command::Top(args)) => top::run(&global, &args, &out),
        Some(Command::Completions(args)) => man_pages::completions(&args, &out),
        Some(Command::Man(args)) => man_pages::man(&args, &out),
    };
    match result {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Ok(Outcome::BadFile) => ExitCode::from(2),
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    // `tidegate ... | head` closes the pipe early, which is not an error.
    let pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(pipe) {
        return ExitCode::SUCCESS;
    }
    let bad_file = error.downcast_ref::<Problems>();
    let text = match bad_file {
        Some(problems) => format!("{problems}\n"),
        None => format!("error: {error:#}\n"),
    };
    // An error of standard error cannot be reported.
    drop(io::stderr().write_all(text.as_bytes()));
    let usage = bad_file.is_some() || error.downcast_ref::<Usage>().is_some();
    ExitCode::from(if usage { 2 } else { 1 })
}

impl Global {
    /// Values that override the file's.
    fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            store: self.store.clone(),
        }
    }

    /// The rule file with the command line's values.
    fn load(&self) -> Result<Loaded, Problems> {
        config::load_with(self.config.as_deref(), &self.overrides(), &config::process_env)
    }
}
