//! The command `tidegate`.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    tidegate::cli::run(tidegate::cli::Args::parse())
}
