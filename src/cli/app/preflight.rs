//! Checks whether a start would fail although the rule file is valid, without binding, connecting
//! or creating anything.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};

use crate::{
    config::{self, Loaded},
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
        let folder = folder.unwrap_or(Path::new("."));
        if !folder.is_dir() || file.is_dir() {
            bail!("log.access_file: {} cannot be written: make its folder first", file.display());
        }
        let place = if file.exists() { file } else { folder };
        config::check_access(place).map_err(|why| anyhow!("log.access_file: {why}"))?;
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
    // A complete CA can be in a read-only folder.
    if !dir.join(KEY_FILE).exists() {
        config::check_folder(dir).map_err(|why| anyhow!("ca_dir: {why}"))?;
    }
    Ca::check(dir).context("ca_dir: the CA cannot be used")
}
