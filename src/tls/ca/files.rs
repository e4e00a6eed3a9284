//! The files of the CA: secrets that only their owner may read, always written completely or not at
//! all.

use std::{
    fs::{self, DirBuilder, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
};

use tempfile::NamedTempFile;

use super::CaError;

/// The permissions of the group and of others.
const OTHERS: u32 = 0o077;
/// The only permission that a group may have: to read.
const GROUP_READS: u32 = 0o040;
/// Largest file that is read. A key and a certificate chain have a few KiB.
const MAX_FILE: u64 = 1024 * 1024;

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CaError {
    move |reason| CaError::File { action, path: path.to_owned(), reason }
}

/// Creates the directory, or checks that only its owner may read it.
pub(super) fn private_dir(dir: &Path) -> Result<(), CaError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed("making the directory", dir))?;
    refuse_exposed(dir, 0o700)
}

/// Checks that only the owner may open a secret.
pub(super) fn refuse_exposed(path: &Path, wanted: u32) -> Result<(), CaError> {
    let metadata = fs::metadata(path).map_err(failed("looking at", path))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(CaError::Exposed { path: path.to_owned(), mode, wanted });
    }
    Ok(())
}

/// Reads a secret that the operator provides. Its group may read it: Kubernetes mounts a Secret
/// with mode 0440 and the pod's `fsGroup`, and systemd gives the user of a credential its group
/// permission.
pub(super) fn read_given(path: &Path) -> Result<String, CaError> {
    let metadata = fs::metadata(path).map_err(failed("looking at", path))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS & !GROUP_READS != 0 {
        return Err(CaError::Exposed { path: path.to_owned(), mode, wanted: 0o440 });
    }
    read(path)
}

/// Reads a secret.
pub(super) fn read_private(path: &Path) -> Result<String, CaError> {
    refuse_exposed(path, 0o600)?;
    read(path)
}

pub(super) fn read(path: &Path) -> Result<String, CaError> {
    let length = fs::metadata(path).map_err(failed("looking at", path))?.len();
    if length > MAX_FILE {
        return Err(super::unfit(path, "is far too large for a key or a certificate"));
    }
    fs::read_to_string(path).map_err(failed("reading", path))
}

/// Writes a secret unless the file exists. The name only appears with the complete content.
pub(super) fn create_private(path: &Path, text: &str) -> Result<(), CaError> {
    match write_temporary(path, text, 0o600)?.persist_noclobber(path) {
        Err(lost) if lost.error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed("writing", path)(lost.error))
        }
        _ => Ok(()),
    }
}

/// Writes a file that everybody may read, unless it exists.
pub(super) fn write_public(path: &Path, text: &str) -> Result<(), CaError> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let written = write_temporary(path, text, 0o644)?.persist(path);
    written.map(drop).map_err(|lost| failed("writing", path)(lost.error))
}

fn write_temporary(path: &Path, text: &str, mode: u32) -> Result<NamedTempFile, CaError> {
    let written =
        NamedTempFile::new_in(path.parent().unwrap_or(Path::new(""))).and_then(|mut file| {
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            Ok(file)
        });
    written.map_err(failed("writing", path))
}
