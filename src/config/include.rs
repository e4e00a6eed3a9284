//! `include`: the files with more rules that a rule file names.
//!
//! The patterns are expanded each time that the rule file is read, so an added, removed or changed
//! file is a change of the whole. A pattern may have wildcards in the file name only, so the
//! folders to watch are known.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
};

use super::{
    Env, MOST_BYTES, read,
    syntax_tree::{self, Flaw, Node, Value},
    units::{Wrong, quote},
    without_bom,
};
use crate::target::glob_matches;

/// Most files that a rule file may include.
const MOST_FILES: usize = 1000;

/// A file that is included.
#[derive(Debug)]
pub(super) struct File {
    /// Its name in messages.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
}

/// What the patterns of `include` name.
#[derive(Debug, Default)]
pub(super) struct Included {
    /// The files, in order.
    pub(super) files: Vec<File>,
    /// Patterns and files with errors.
    pub(super) wrong: Vec<Flaw>,
    /// Patterns that match no file, as warnings.
    pub(super) idle: Vec<Flaw>,
}

/// The files that the rule file with the tree `root` includes, in order, and the patterns or files
/// with errors.
pub(super) fn files(root: Option<&Node>, folder: &Path) -> Included {
    let (mut included, mut seen) = (Included::default(), HashSet::new());
    let mut bytes = 0;
    let mut matches = Vec::new();
    for (path, node) in patterns(root) {
        let place = folder.join(node.text().unwrap_or_default());
        let found = matching(&place);
        if found.as_ref().is_ok_and(Vec::is_empty) {
            let message = format!("{} matches no file", quote(&place.display().to_string()));
            let help = "correct the pattern, or ignore this until the first file is there";
            included.idle.push(Flaw::new(node.place, path.clone(), Wrong::new(message, help)));
        }
        matches.push((path, node, found));
    }
    for (path, node, found) in matches {
        let flaw = |message: String, help: &str| {
            Flaw::new(node.place, path.clone(), Wrong::new(message, help))
        };
        let found = match found {
            Ok(found) => found,
            Err(wrong) => {
                let help = "name a file, or use `*` in the last part: `rules.d/*.yaml`";
                let pattern = node.text().unwrap_or_default();
                included.wrong.push(flaw(format!("{}: {wrong}", quote(pattern)), help));
                continue;
            }
        };
        for file in found.into_iter().filter(|file| seen.insert(file.clone())) {
            let name = file.display().to_string();
            match read(&file, &name) {
                Ok(text) => {
                    bytes += text.len() as u64;
                    included.files.push(File { name, text });
                }
                Err(problems) => included.wrong.extend(problems.as_slice().iter().map(|problem| {
                    flaw(
                        format!("{name}: {}", problem.message),
                        "correct the file, or do not \
                                                                  include it",
                    )
                })),
            }
            if bytes > MOST_BYTES || included.files.len() > MOST_FILES {
                let message = format!("more than {MOST_FILES} files, or more than 1 MiB in total");
                included.wrong.push(flaw(message, "put hosts that share a rule into one list"));
                included.files.clear();
                return included;
            }
        }
    }
    included
}

/// The folders of the files that the rule file `text` includes, and the fingerprint of all files.
pub(super) fn watched(text: &[u8], folder: &Path, env: &Env<'_>) -> (HashSet<PathBuf>, u64) {
    let tree = std::str::from_utf8(text).ok();
    let tree = tree.and_then(|text| syntax_tree::parse(without_bom(text), env).root);
    let Included { files, .. } = files(tree.as_deref(), folder);
    let parents = patterns(tree.as_deref())
        .into_iter()
        .filter_map(|(_, node)| Some(folder.join(node.text()?).parent()?.to_path_buf()));
    (parents.collect(), fingerprint(text, &files))
}

/// A hash of a rule file and the files that it includes.
pub(super) fn fingerprint(text: &[u8], files: &[File]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    for file in files {
        (&file.name, &file.text).hash(&mut hasher);
    }
    hasher.finish()
}

/// The values of `include` that are texts, with their paths.
fn patterns(root: Option<&Node>) -> Vec<(String, &Node)> {
    let Some(node) = root.and_then(|root| root.get("include")) else { return Vec::new() };
    let patterns = match &node.value {
        Value::List(items) => {
            let items = items.iter().enumerate();
            items.map(|(at, node)| (format!("include[{at}]"), &**node)).collect()
        }
        _ => vec![("include".to_owned(), &**node)],
    };
    patterns.into_iter().filter(|(_, node)| node.text().is_some()).collect()
}

/// The files that match a pattern, sorted by name. Hidden files are omitted, because a ConfigMap
/// keeps its versions in them.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let name = pattern.file_name().and_then(OsStr::to_str).ok_or("it names no file")?;
    let folder = pattern.parent().unwrap_or(Path::new(""));
    if folder.to_string_lossy().contains('*') {
        return Err("a folder name with `*`".to_owned());
    }
    if !name.contains('*') {
        let found = fs::metadata(pattern).map_err(|error| error.to_string())?;
        // A read of a pipe, for example, may never end.
        let there = found.is_file().then(|| vec![pattern.to_path_buf()]);
        return there.ok_or_else(|| "it is not a file".to_owned());
    }
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match fs::read_dir(here) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let fits = |found: &String| !found.starts_with('.') && glob_matches(name, found);
    let paths = names.filter(fits).map(|found| folder.join(found));
    let mut paths: Vec<_> = paths.filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
}
