//! The rule file from a user's view: valid files load, invalid ones are explained, examples and
//! documentation are correct.

mod fixtures;
mod hostile;
mod include;
mod properties;
mod reload;
mod schema;
mod values;

use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_path_buf()
}

/// The YAML files of a folder, sorted; never none.
fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let folder = root().join(folder);
    let files = std::fs::read_dir(&folder).expect("the folder is there");
    let mut files: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{} has YAML files", folder.display());
    files
}

/// The environment of the fixtures and examples.
fn env(name: &str) -> Option<String> {
    let value = match name {
        "ADMIN_TOKEN" => "0123456789abcdef",
        "PROXY_PASSWORD" | "LEAKED" => "hunter2",
        "HOME" => "/home/crawler",
        "FIVE" => "5",
        "YAML" => "1/s\n    cost: 100",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Compares with a file of the repository. `TIDEGATE_BLESS=1` writes it instead.
fn is_as_in(file: &Path, actual: &str) -> bool {
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(file, actual).expect("writable");
    }
    std::fs::read_to_string(file).is_ok_and(|expected| expected == actual)
}
