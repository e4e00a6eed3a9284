//! The command `tidegate`.

use std::process::ExitCode;

use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

/// Buffers come and go with each request; this one keeps what is free at hand, and gives pages back
/// once the load is over.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    tidegate::cli::run(tidegate::cli::Args::parse())
}
