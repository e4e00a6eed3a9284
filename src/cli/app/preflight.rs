//! Checks whether a start would fail, or a feature would not work, although the rule file is valid, without binding, connecting
//! or creating anything.

use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::fs::{Access, access};

use crate::{
    config::Loaded,
    rules::settings::{Settings, StoreSettings},
    store,
    tls::ca::Ca,
};

/// Whether a proxy with this rule file would start and work on this machine, as far as that can be checked.
///
/// # Errors
/// The reason for a failure, and the fix.
pub fn preflight(loaded: &Loaded) -> anyhow::Result<()> {
    let settings = &loaded.settings;
    if let StoreSettings::Redis(redis) = &settings.store {
        store::redis::servers(redis)?;
    }
    if loaded.rules.as_slice().iter().any(|rule| rule.intercept) {
        check_ca(settings)?;
    }
    check_keep(settings)?;
    if let Some(file) = &settings.log.access_file {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        if !folder.is_dir() || file.is_dir() {
            bail!("log.access_file: {} cannot be written: make its folder first", file.display());
        }
        check_access("log.access_file", if file.exists() { file } else { folder })?;
    }
    Ok(())
}

/// Whether pages can be kept. The proxy works without.
pub(super) fn check_keep(settings: &Settings) -> anyhow::Result<()> {
    settings.inspect.keep.as_ref().map_or(Ok(()), |keep| check_folder("inspect.keep", &keep.folder))
}

/// Checks the existing CA, or whether its directory could be created.
fn check_ca(settings: &Settings) -> anyhow::Result<()> {
    if settings.ca.is_some() {
        // The check of the rule file has already opened it.
        return Ok(());
    }
    check_folder("ca_dir", &settings.ca_dir)?;
    Ca::check(&settings.ca_dir).context("ca_dir: the CA cannot be used")
}

/// Whether this user can write to the folder, or make it.
fn check_folder(key: &str, folder: &Path) -> anyhow::Result<()> {
    let above = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    if !above.is_dir() {
        let (folder, above) = (folder.display(), above.display());
        bail!("{key}: {folder} cannot be used as a folder: {above} is a file");
    }
    check_access(key, above)
}

fn check_access(key: &str, path: &Path) -> anyhow::Result<()> {
    access(path, Access::WRITE_OK)
        .with_context(|| format!("{key}: this user cannot write to {}", path.display()))
}
