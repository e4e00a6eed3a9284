//! The command `tidegate`.

use std::process::ExitCode;

use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

/// Requests and buffers come and go on other threads than they were made on; this one keeps what is
/// free at hand, and gives pages back once the load is over.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    tidegate::cli::run(tidegate::cli::Args::parse())
}
