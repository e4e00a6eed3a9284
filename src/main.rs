//! The command `tidegate`.

use std::process::ExitCode;

use clap::Parser as _;
use mimalloc::MiMalloc;

/// Buffers come and go with each request; this one keeps what is free at hand, and gives pages back
/// once the load is over.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tidegate::cli::run(tidegate::cli::Args::parse())
}
