//! The command `tidegate`.

use std::process::ExitCode;

/// Every request allocates and frees buffers. jemalloc reuses them quickly, and returns pages after
/// the load.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    tidegate::cli::run(tidegate::cli::Args::of_process())
}
