//! Paths of the rule file: relative to its folder, `~` for the home directory, and checks of
//! required files.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use super::FileContext;
use crate::{
    config::{
        cursor::Cursor,
        section::Reader,
        units::{Read, Wrong, quote},
    },
    tls::{
        ca::{Ca, CaError},
        roots,
    },
};

/// A path as the process can open it.
pub(super) fn resolve(text: &str, context: &FileContext<'_>) -> Read<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err(Wrong::new(format!("{} is not a valid path", quote(text)), "write one"));
    }
    match text.strip_prefix("~/").or(Some("").filter(|_| text == "~")) {
        Some(rest) => {
            // Without a home directory, a service can still write here.
            let home = (context.env)("HOME").filter(|home| !home.is_empty());
            Ok(PathBuf::from(home.unwrap_or_else(|| "/var/lib/tidegate".to_owned())).join(rest))
        }
        None => Ok(context.folder.join(text)),
    }
}

/// Whether this user can write to the folder, or make it. The error is a message for people.
pub(crate) fn check_folder(folder: &Path) -> Result<(), String> {
    let above = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    if !above.is_dir() {
        let (folder, above) = (folder.display(), above.display());
        return Err(format!("{folder} cannot be used as a folder: {above} is a file"));
    }
    check_access(above)
}

/// Whether this user can write to the existing file or folder.
pub(crate) fn check_access(path: &Path) -> Result<(), String> {
    access(path, Access::WRITE_OK)
        .map_err(|error| format!("this user cannot write to {}: {error}", path.display()))
}

/// A path whose file can be opened.
fn file(cursor: &Cursor<'_>, context: &FileContext<'_>) -> Option<PathBuf> {
    cursor.scalar(|text| {
        let path = resolve(text, context)?;
        let opened = File::open(&path).and_then(|file| file.metadata());
        match opened {
            Ok(meta) if meta.is_file() => Ok(path),
            Ok(_) => Err(Wrong::new(format!("{} is not a file", quote(text)), "name a PEM file")),
            Err(error) => {
                let message = format!("{} cannot be read: {error}", quote(text));
                Err(Wrong::new(message, "paths are relative to the rule file's folder"))
            }
        }
    })
}

/// `ca`, opened as the proxy opens it: an unusable file is reported before a rule intercepts.
pub(super) fn ca(reader: &Reader<'_>, context: &FileContext<'_>) -> Option<(PathBuf, PathBuf)> {
    let cursor = reader.given_cursor("ca")?;
    let section = cursor.open();
    let path = |key| section.cursor(key).and_then(|cursor| file(&cursor, context));
    let (cert, key) = (path("cert"), path("key"));
    let given = (cert?, key?);
    match Ca::open(Path::new(""), Some(&given)) {
        Ok(_) => Some(given),
        Err(error) => {
            let key = if names(&error, &given.1) { "key" } else { "cert" };
            section.wrong(key, Wrong { message: error.to_string(), help: None });
            None
        }
    }
}

/// Whether the mistake is in this file.
fn names(error: &CaError, file: &Path) -> bool {
    match error {
        CaError::File { path, .. }
        | CaError::Exposed { path, .. }
        | CaError::Unfit { path, .. } => path == file,
        CaError::Mint(_) => false,
    }
}

/// Whether a text is a variable in the notation of a shell, such as `$PASSWORD`.
fn is_bare_variable(text: &str) -> bool {
    text.strip_prefix('$').is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    })
}

/// Warns of a secret in a rule file that every user can read, and of one that is meant to be read
/// from the environment but is not.
pub(super) fn warn_if_exposed(cursor: &Cursor<'_>, context: &FileContext<'_>) {
    if cursor.is_literal() && cursor.text().is_some_and(is_bare_variable) {
        let message = "a `$NAME` without braces is taken literally, as the secret itself";
        cursor.warn(Wrong::new(message, "write `${NAME}` to read the environment"));
        return;
    }
    if context.exposed && cursor.is_literal() {
        let help = "write `${NAME}` and set it in the environment, or `chmod 600` the file";
        let message = "the file has a secret, and every user of this machine can read it";
        cursor.warn(Wrong::new(message, help));
    }
}

/// Files of roots: `upstream_ca`, and `ca` of the store.
pub(super) fn roots(reader: &Reader<'_>, key: &str, context: &FileContext<'_>) -> Vec<PathBuf> {
    let Some(cursor) = reader.cursor(key) else { return Vec::new() };
    let mut paths = Vec::new();
    for item in cursor.one_or_many() {
        let Some(path) = file(&item, context) else { continue };
        match roots::check(&path) {
            Ok(()) => paths.push(path),
            Err(error) => {
                let help = "name a file with certificates (PEM, `-----BEGIN CERTIFICATE-----`)";
                item.wrong(Wrong::new(error.to_string(), help));
            }
        }
    }
    paths
}
