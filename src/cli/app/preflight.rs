//! Checks whether a start would fail although the rule file is valid, without binding, connecting
//! or creating anything.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::{
    config::Loaded,
    rules::settings::{Settings, StoreSettings},
    store,
    tls::ca::{Ca, KEY_FILE},
};

/// Whether a proxy with this rule file would start on this machine, as far as that can be checked.
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
    if let Some(file) = &settings.log.access_file {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if !folder.unwrap_or(Path::new(".")).is_dir() || file.is_dir() {
            bail!("log.access_file: {} cannot be written: make its folder first", file.display());
        }
    }
    Ok(())
}

/// Checks the existing CA, or whether its directory could be created.
fn check_ca(settings: &Settings) -> anyhow::Result<()> {
    if settings.ca.is_some() {
        // The check of the rule file has already opened it.
        return Ok(());
    }
    let dir = &settings.ca_dir;
    if dir.is_dir() {
        // Without a key, the start creates a CA.
        if dir.join(KEY_FILE).exists() {
            Ca::open(dir, None)?;
        }
        return Ok(());
    }
    let above = dir.ancestors().skip(1).find(|above| above.exists());
    let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let metadata = above.metadata().with_context(|| format!("ca_dir: {}", above.display()))?;
    if !metadata.is_dir() {
        bail!("ca_dir: {} cannot be made: {} is not a folder", dir.display(), above.display());
    }
    Ok(())
}
