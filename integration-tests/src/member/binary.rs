//! Finds the built binary. Cargo does not build it for another package's tests, so a missing or
//! outdated one is reported.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::SystemTime,
};

/// The binary `tidegate` of the tests' profile.
///
/// # Panics
/// If it is missing, or older than one of its source files.
#[must_use]
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = std::env::current_exe().expect("a running program has a path");
        let folder = test
            .ancestors()
            .find(|folder| folder.join(".fingerprint").is_dir())
            .expect("tests run from cargo's target folder");
        let binary = folder.join("tidegate");
        assert!(
            binary.is_file(),
            "{} is missing: run `make test`, or `cargo build` first",
            binary.display()
        );
        if let Some(newer) = newer_source(&binary) {
            panic!(
                "{} is older than {newer}: run `make test`, or `cargo build` first",
                binary.display()
            );
        }
        binary
    })
}

/// A source file (by cargo's own list) that changed after the binary was linked.
fn newer_source(binary: &Path) -> Option<String> {
    let list = std::fs::read_to_string(binary.with_extension("d")).ok()?;
    let built = changed(binary)?;
    let (_, sources) = list.split_once(": ")?;
    let newer = |source: &&str| changed(Path::new(source)).is_some_and(|at| at > built);
    sources.split_whitespace().find(newer).map(str::to_owned)
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}
