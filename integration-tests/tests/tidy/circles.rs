//! Finds import circles between the files of `src/`.
//!
//! A file and the files of its own folder belong together: a parent re-exports its parts, and the
//! parts use its types. All other imports must have one direction.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// A file of the crate as the path of its module: `src/gate/queue.rs` is `[gate, queue]`.
type Module = Vec<String>;

/// The files of the crate, the names that each exports, and the files that each uses.
pub(crate) struct Imports {
    handed_on: BTreeMap<(Module, String), Module>,
    modules: BTreeSet<Module>,
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    /// Reads `files`: the path inside `src/` of each, and its code without comments and tests.
    pub(crate) fn new(files: &[(PathBuf, String)]) -> Self {
        let modules = files.iter().map(|(path, _)| module(path)).collect();
        let mut imports = Self { handed_on: BTreeMap::new(), modules, edges: BTreeMap::new() };
        for (path, code) in files {
            let here = module(path);
            for (_, paths) in uses(code).into_iter().filter(|(public, _)| *public) {
                for path in paths {
                    let name = path.last().expect("a path has a last word").clone();
                    if let Some(full) = imports.absolute(&here, &path) {
                        imports.handed_on.insert((here.clone(), name), full);
                    }
                }
            }
        }
        for (path, code) in files {
            let here = module(path);
            let mut named: Vec<_> = inline(code);
            let private = uses(code).into_iter().filter(|(public, _)| !public);
            named.extend(private.flat_map(|(_, paths)| paths));
            let of =
                |path: &Module| imports.absolute(&here, path).and_then(|p| imports.home(&p, 0));
            let others = named.iter().filter_map(of).filter(|m| !is_kin(m, &here)).collect();
            imports.edges.insert(here, others);
        }
        imports
    }

    /// Files that name each other in a circle, one line each.
    pub(crate) fn circles(&self) -> Vec<String> {
        let reached: BTreeMap<_, _> = self.modules.iter().map(|m| (m, self.reach(m))).collect();
        let mut circles = BTreeSet::new();
        for module in &self.modules {
            let circle: BTreeSet<_> =
                reached[module].iter().filter(|other| reached[other].contains(module)).collect();
            if !circle.is_empty() {
                let names: Vec<_> = circle.iter().map(|module| module.join("/")).collect();
                circles.insert(names.join(", "));
            }
        }
        circles.into_iter().collect()
    }

    /// All files that `from` names, directly or through others.
    fn reach(&self, from: &Module) -> BTreeSet<Module> {
        let mut found = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            for next in self.edges.get(module).into_iter().flatten() {
                if found.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        found
    }

    /// `path` from the root of the crate; `None` for a path of another crate.
    fn absolute(&self, here: &Module, path: &Module) -> Option<Module> {
        let mut base = here.clone();
        let mut rest = &path[..];
        match path[0].as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some((_, after)) = rest.split_first().filter(|(word, _)| *word == "super")
                {
                    base.pop()?;
                    rest = after;
                }
            }
            word => {
                base.push(word.to_owned());
                if !self.modules.contains(&base) {
                    return None;
                }
                rest = &path[1..];
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// The file that defines the target of `path`.
    fn home(&self, path: &Module, depth: usize) -> Option<Module> {
        let length = (0..=path.len()).rev().find(|n| self.modules.contains(&path[..*n]))?;
        let (module, rest) = path.split_at(length);
        let handed_on = rest
            .first()
            .filter(|_| depth < 8)
            .and_then(|name| self.handed_on.get(&(module.to_vec(), name.clone())));
        match handed_on {
            Some(from) => self.home(&[from, &rest[1..]].concat(), depth + 1),
            None => Some(module.to_vec()),
        }
    }
}

fn module(path: &Path) -> Module {
    let mut words: Module =
        path.with_extension("").iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words == ["lib"] {
        words.clear();
    }
    words
}

/// The same file, or one in the other's folder.
fn is_kin(a: &Module, b: &Module) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// The `use` declarations of `code`, each with whether it hands on and with all its paths.
fn uses(code: &str) -> Vec<(bool, Vec<Module>)> {
    let mut found = Vec::new();
    for declaration in code.split(';') {
        let Some(at) = declaration.rfind("use ") else { continue };
        let before = declaration[..at].trim_end();
        let starts =
            before.is_empty() || before.ends_with(['}', ']', '{', ')']) || before.ends_with("pub");
        if starts {
            let public =
                before.ends_with("pub") || before.ends_with(')') && before.contains("pub(");
            found.push((public, flat(declaration[at + 4..].trim())));
        }
    }
    found
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn flat(tree: &str) -> Vec<Module> {
    let Some(at) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return vec![path.split("::").map(|word| word.trim().to_owned()).collect()];
    };
    let head: Module = tree[..at]
        .split("::")
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .map(str::to_owned)
        .collect();
    let inner = &tree[at + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start, mut paths) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[start..at].trim();
                if !part.is_empty() {
                    paths.extend(flat(part).into_iter().map(|path| [head.clone(), path].concat()));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    paths
}

/// Paths within the code, such as `super::scripts::run`.
fn inline(code: &str) -> Vec<Module> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.lines()
        .filter(|line| !line.trim_start().starts_with("use "))
        .flat_map(|line| line.split(move |c| !is_path(c)))
        .filter(|text| text.contains("::"))
        .map(|text| {
            text.split("::").filter(|w| !w.is_empty()).map(str::to_owned).collect::<Module>()
        })
        .filter(|path| path.len() > 1)
        .collect()
}

#[test]
fn an_import_circle_is_found_and_a_parent_with_its_parts_is_not_one() {
    let file = |name: &str, code: &str| (PathBuf::from(name), code.to_owned());
    let circle = [
        file("lib.rs", "pub mod a; pub mod b;"),
        file("a.rs", "use crate::b::{self, Two};"),
        file("b.rs", "mod c;\npub use c::Two;"),
        file("b/c.rs", "pub struct Two;\nfn f() { crate::a::g(); }"),
    ];
    assert_eq!(Imports::new(&circle).circles(), ["a, b/c"]);
    let none = [
        file("lib.rs", "pub mod a;"),
        file("a.rs", "mod b;\nuse b::B;\npub struct A;"),
        file("a/b.rs", "use super::A;"),
    ];
    assert!(Imports::new(&none).circles().is_empty());
}
