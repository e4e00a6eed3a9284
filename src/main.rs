//! The command `tidegate`.

use std::process::ExitCode;

use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

/// Every request allocates and frees buffers. jemalloc reuses them quickly, and returns pages after
/// the load.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    tidegate::cli::run(tidegate::cli::Args::parse())
}
