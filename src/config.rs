//! The rule file: from YAML to runtime types, with every mistake reported at once.
//!
//! In reading order: `syntax_tree` parses the file into a tree with positions, `keys` is the
//! table of all keys, `section` reads a mapping by that table, `check` builds [`Settings`] and
//! [`RuleSet`] from it. Nothing takes effect here: a file is valid as a whole or is rejected.

mod advice;
mod check;
mod cursor;
mod diagnostics;
mod diff;
mod env;
mod include;
mod keys;
mod problem;
mod range;
pub mod reference;
pub mod reload;
pub mod schema;
mod section;
mod syntax_tree;
mod units;

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    rc::Rc,
};

pub(crate) use check::paths::{check_access, check_folder};
pub use diff::{Diff, diff};
pub use env::Env;
pub use problem::{Problem, Problems, Severity, report_json};

use self::{
    diagnostics::{Diagnostics, Shown},
    include::Included,
};
use crate::rules::{RuleSet, settings::Settings};

/// The rule file in the working directory that is used if none is named.
pub const DEFAULT_PATH: &str = "config/tidegate.yaml";
/// The rule file that is used if there is none.
pub const BUILT_IN: &str = include_str!("../config/tidegate.yaml");
/// Its name in messages.
pub const BUILT_IN_NAME: &str = "built-in defaults";
/// Largest rule file, in bytes: room for thousands of rules.
pub const MOST_BYTES: u64 = 1024 * 1024;

/// A valid rule file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Everything but the rules.
    pub settings: Settings,
    /// The rules.
    pub rules: RuleSet,
    /// Warnings: values that are probably a mistake.
    pub warnings: Vec<Problem>,
    /// The file it was read from; `None` for the built-in defaults.
    pub path: Option<PathBuf>,
    values: BTreeMap<String, Shown>,
    /// The rule file and the files that it includes, as messages name them.
    files: Vec<String>,
    /// A hash of the text, by which a watcher notices changes.
    fingerprint: u64,
}

impl Loaded {
    /// Every key with its effective value, by path (`rules.default.rate`), secrets as `***`.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(path, shown)| (path.as_str(), shown.text.as_str()))
    }

    /// The place of the value of this path, `rules.yaml:7`; `None` for a default.
    #[must_use]
    pub fn origin(&self, path: &str) -> Option<String> {
        let (file, line) = self.values.get(path)?.origin()?;
        Some(format!("{}:{line}", self.files.get(file)?))
    }
}

/// Values of the command line. They override the file's and pass the same checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin`
    pub admin: Option<String>,
    /// `--store`
    pub store: Option<String>,
}

impl Overrides {
    fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("listen", &self.listen), ("admin", &self.admin), ("store", &self.store)];
        all.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?)))
    }
}

/// A rate as the rule file writes it (`3/s`, `90/m`), in tokens per second.
///
/// # Errors
/// The mistake, and the fix.
pub fn rate(text: &str) -> Result<f64, String> {
    units::rate(text).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}: {help}", wrong.message),
        None => wrong.message,
    })
}

/// The environment of this process, for [`load`].
#[must_use]
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reads the rule file at `path`. Without a path it reads [`DEFAULT_PATH`] if that exists,
/// otherwise the built-in defaults.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: Option<&Path>, env: &Env<'_>) -> Result<Loaded, Problems> {
    load_with(path, &Overrides::default(), env)
}

/// As [`load`], with the values of the command line in place of the file's.
///
/// # Errors
/// Everything that is wrong with the file or these values.
pub fn load_with(
    path: Option<&Path>,
    overrides: &Overrides,
    env: &Env<'_>,
) -> Result<Loaded, Problems> {
    let Some(path) = file_of(path) else {
        return parse_with(BUILT_IN, BUILT_IN_NAME, overrides, env, false);
    };
    let name = path.display().to_string();
    let text = read(&path, &name)?;
    let loaded = parse_with(&text, &name, overrides, env, is_readable_by_all(&path))?;
    Ok(Loaded { path: Some(path), ..loaded })
}

/// The file that [`load`] reads: the named one, otherwise the default one if it exists.
#[must_use]
pub fn file_of(path: Option<&Path>) -> Option<PathBuf> {
    let default = Path::new(DEFAULT_PATH);
    path.or_else(|| default.exists().then_some(default)).map(Path::to_path_buf)
}

fn read(path: &Path, name: &str) -> Result<String, Problems> {
    let failed = |error: std::io::Error| {
        let help = "put a readable file there, or start with another one: `--config FILE`";
        Problems::of_file(name, format!("it cannot be read: {error}"), Some(help))
    };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(Problems::of_file(name, "it is a folder".into(), Some("name a file in it")));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        let help = "1 MiB is room for thousands of rules; put hosts that share a rule in one list";
        return Err(Problems::of_file(name, "it is larger than 1 MiB".into(), Some(help)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("it is not UTF-8 (line {line})");
        Problems::of_file(name, message, Some("save it as UTF-8"))
    })
}

/// Reads a rule file from `text`, called `name` in messages; relative paths start at its folder.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, name: &str, env: &Env<'_>) -> Result<Loaded, Problems> {
    parse_with(text, name, &Overrides::default(), env, false)
}

/// Whether every user of this machine can read the file, and so its secrets.
#[cfg(unix)]
fn is_readable_by_all(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
}

/// Whether every user of this machine can read the file: this system has no modes.
#[cfg(not(unix))]
fn is_readable_by_all(_path: &Path) -> bool {
    false
}

fn parse_with(
    text: &str,
    name: &str,
    overrides: &Overrides,
    env: &Env<'_>,
    exposed: bool,
) -> Result<Loaded, Problems> {
    if text.len() as u64 > MOST_BYTES {
        return Err(Problems::of_file(name, "it is larger than 1 MiB".into(), None));
    }
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let bytes = text.as_bytes();
    let text = without_bom(text);
    let syntax_tree = syntax_tree::parse(text, env);
    let Included { files, wrong, idle } = include::files(syntax_tree.root.as_deref(), folder);
    let fingerprint = include::fingerprint(bytes, &files);
    let sources =
        files.iter().map(|file| problem::Source::new(&file.name, without_bom(&file.text)));
    let main = problem::Source::new(name, text);
    let diagnostics = Diagnostics::new(std::iter::once(main).chain(sources).collect());
    wrong.into_iter().for_each(|flaw| diagnostics.note(Severity::Error, flaw));
    idle.into_iter().for_each(|flaw| diagnostics.note(Severity::Warning, flaw));
    let root = collect_flaws(&diagnostics, syntax_tree);
    let documents = files.iter().enumerate();
    let documents = documents
        .map(|(at, file)| syntax_tree::parse_file(without_bom(&file.text), at + 1, env))
        .filter_map(|syntax_tree| collect_flaws(&diagnostics, syntax_tree));
    let included: Vec<_> = documents.collect();
    let context = check::FileContext { folder, env, exposed };
    let read = root.map(|root| check::file(&diagnostics, &root, &included, overrides, &context));
    let (values, mut problems) = diagnostics.finish();
    for problem in problems.iter_mut().filter(|problem| problem.line == 0) {
        if overrides.given().any(|(key, _)| key == problem.path) {
            problem.path.insert_str(0, "--");
            problem.file.replace_range(.., "command line");
        }
    }
    match read {
        Some((settings, rules)) if problems.iter().all(|p| p.severity == Severity::Warning) => {
            let names = files.into_iter().map(|file| file.name);
            let files = std::iter::once(name.to_owned()).chain(names).collect();
            let (warnings, path) = (problems, None);
            Ok(Loaded { settings, rules, warnings, path, values, files, fingerprint })
        }
        _ => Err(Problems(problems)),
    }
}

/// Without the byte order mark that editors on Windows put in front.
fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reports the flaws of a syntax tree and returns the tree.
fn collect_flaws(
    diagnostics: &Diagnostics<'_>,
    syntax_tree: syntax_tree::SyntaxTree,
) -> Option<Rc<syntax_tree::Node>> {
    syntax_tree.hidden.iter().for_each(|place| diagnostics.hide(*place));
    for flaw in syntax_tree.flaws {
        if flaw.fatal {
            diagnostics.hide_near_secrets(&flaw);
        }
        diagnostics.note(Severity::Error, flaw);
    }
    syntax_tree.root
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_file_is_good_and_has_the_defaults_of_the_table() {
        let built_in = parse(BUILT_IN, "f", &|_| None).unwrap_or_else(|p| panic!("{p}"));
        assert_eq!(built_in.warnings, []);
        let text = "rules:\n  - {name: default, match: '*', rate: 3/s, burst: 5}\n";
        let bare = parse(text, "f", &|_| None).unwrap_or_else(|p| panic!("{p}"));
        assert_eq!(built_in.rules.as_slice(), bare.rules.as_slice());
        assert_eq!(format!("{:?}", built_in.settings), format!("{:?}", bare.settings));
    }
    #[test]
    fn each_word_of_the_table_can_be_read() {
        let mut read = 0;
        let mut try_words = |section: &keys::Section, file: &dyn Fn(&str) -> String| {
            for key in section.keys {
                let keys::Kind::Word(words) = &key.kind else { continue };
                for word in *words {
                    let text = file(&format!("{}: {word}", key.name));
                    drop(parse(&text, "f", &|_| None));
                    read += 1;
                }
            }
        };
        let rule = |key: &str| format!("rules: [{{name: a, match: '*', rate: 1/s, {key}}}]");
        try_words(&keys::RULE, &rule);
        try_words(&keys::COOLDOWN, &|key| rule(&format!("cooldown: {{{key}}}")));
        let detect = |key: &str| rule(&format!("detect: [{{name: a, status: 200, {key}}}]"));
        try_words(&keys::DETECT, &detect);
        try_words(&keys::STORE, &|key| format!("store: {{url: redis://h:1, {key}}}"));
        try_words(&keys::LOG, &|key| format!("log: {{{key}}}"));
        assert!(read > 30, "{read}");
    }
}
