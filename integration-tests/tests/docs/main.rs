//! README and docs are correct: their rule files are valid, their commands run, their links work,
//! and `docker/` fits the program.

mod api;
mod blocks;
mod commands;
mod docker;
mod helm;
mod links;
mod manifests;
mod rule_files;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace").into()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The path as the repository knows it.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All files below `folder` with one of these extensions, sorted; never none.
fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("a folder can be listed").path();
            let is_wanted = |extension| extensions.iter().any(|wanted| *wanted == extension);
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(is_wanted) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no {extensions:?} in {folder}");
    found.sort();
    found
}

/// The pages: those of the top folder and of `docs/`.
fn pages() -> Vec<PathBuf> {
    let top = fs::read_dir(root()).expect("the repository can be listed");
    let mut pages: Vec<_> = top.map(|entry| entry.expect("an entry").path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    assert!(pages.len() >= 5, "README, ARCHITECTURE, CONTRIBUTING, CHANGELOG, SECURITY");
    pages.extend(files("docs", &["md"]));
    pages
}

/// Reports all problems at once, so that one run shows everything to fix.
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n\n{}", found.join("\n\n"));
}
