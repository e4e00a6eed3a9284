//! Paths of the rule file: relative to its folder, `~` for the home; files that must be there are.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use super::Surroundings;
use crate::config::{
    is_readable_by_all,
    section::Reader,
    spot::Spot,
    units::{Read, Wrong, quote},
};

/// A path as the process can open it.
pub(super) fn resolve(text: &str, around: &Surroundings<'_>) -> Read<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err(Wrong::new(format!("{} is no path", quote(text)), "write one"));
    }
    match text.strip_prefix("~/").or(Some("").filter(|_| text == "~")) {
        Some(rest) => {
            // Without a home there is still a place where a service may write.
            let home = (around.env)("HOME").filter(|home| !home.is_empty());
            Ok(PathBuf::from(home.unwrap_or_else(|| "/var/lib/tidegate".to_owned())).join(rest))
        }
        None => Ok(around.folder.join(text)),
    }
}

/// A path whose file can be opened.
fn file(spot: &Spot<'_>, around: &Surroundings<'_>) -> Option<PathBuf> {
    spot.scalar(|text| {
        let path = resolve(text, around)?;
        let opened = File::open(&path).and_then(|file| file.metadata());
        match opened {
            Ok(meta) if meta.is_file() => Ok(path),
            Ok(_) => Err(Wrong::new(format!("{} is no file", quote(text)), "name a PEM file")),
            Err(error) => {
                let message = format!("{} cannot be read: {error}", quote(text));
                Err(Wrong::new(message, "the path starts at the rule file's folder"))
            }
        }
    })
}

/// `ca`.
pub(super) fn ca(reader: &Reader<'_>, around: &Surroundings<'_>) -> Option<(PathBuf, PathBuf)> {
    let section = reader.given_spot("ca")?.open();
    let cert = section.spot("cert").and_then(|spot| file(&spot, around));
    let key_spot = section.spot("key");
    let key = key_spot.as_ref().and_then(|spot| file(spot, around));
    if let (Some(spot), Some(path)) = (&key_spot, &key) {
        warn_if_open(spot, path);
    }
    Some((cert?, key?))
}

fn warn_if_open(spot: &Spot<'_>, path: &Path) {
    if is_readable_by_all(path) {
        let help = "whoever has it can read all traffic of these clients: `chmod 600`";
        spot.doubt(Wrong::new("everybody on this machine can read the key", help));
    }
}

/// Warns of a secret that stands in the rule file itself where everybody can read that.
pub(super) fn warn_if_exposed(spot: &Spot<'_>, around: &Surroundings<'_>) {
    if around.exposed && spot.is_literal() {
        let help = "write `${NAME}` and set it in the environment, or `chmod 600` the file";
        let message = "a secret in a file that everybody on this machine can read";
        spot.doubt(Wrong::new(message, help));
    }
}

/// `upstream_ca`.
pub(super) fn upstream_ca(reader: &Reader<'_>, around: &Surroundings<'_>) -> Vec<PathBuf> {
    let Some(spot) = reader.spot("upstream_ca") else { return Vec::new() };
    spot.one_or_many().iter().filter_map(|item| file(item, around)).collect()
}
