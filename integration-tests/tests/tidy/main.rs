//! Checks that no compiler and no lint makes: layers, module heads, file sizes, undocumented and
//! unused items.

mod circles;

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use integration_tests::metric_names::metric_names;

/// Each module uses only modules on earlier lines, or on its own line (neighbours in one layer).
const LAYERS: [&[&str]; 12] = [
    &["runtime", "http1", "target"],
    &["classify"],
    &["limiter"],
    &["rules"],
    &["observability", "tls"],
    &["store"],
    &["gate", "explain"],
    &["proxy", "admin"],
    &["config"],
    &["cli"],
    &["main"],
    // The crate root is outside of the layers.
    &["lib"],
];

/// The one circle: the queue of a scope makes grants, and a grant goes back to its queue.
const QUEUE: &str = "gate/active_scope, gate/bucket, gate/grant, gate/observe, gate/reports";

/// Longest file before its tests. A concept stays in one file up to here, rather than be cut into parts that only make
/// sense together.
const LINES_AT_MOST: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace").into()
}

/// All files below `folder` with this extension, sorted; never none.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no *.{extension} in {folder}");
    found.sort();
    found
}

fn rust_files() -> Vec<PathBuf> {
    let tests = files("integration-tests/src", "rs").into_iter();
    files("src", "rs")
        .into_iter()
        .chain(tests)
        .chain(files("integration-tests/tests", "rs"))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Reports all problems at once, so that one run shows everything to fix.
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// The text before the file's own test module.
fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
}

/// The code of a file, without comments and tests.
fn code(path: &Path) -> String {
    let text = read(path);
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    without_tests(&text).lines().filter(is_code).fold(String::new(), |t, line| t + line + "\n")
}

#[test]
fn imports_go_one_way() {
    let source = root().join("src");
    let inside = |path: &PathBuf| path.strip_prefix(&source).expect("it is in src").to_owned();
    let files: Vec<_> = files("src", "rs")
        .iter()
        .filter(|path| !name(path).contains("tests"))
        .map(|path| (inside(path), code(path)))
        .collect();
    let mut circles = circles::Imports::new(&files).circles();
    circles.retain(|circle| circle != QUEUE);
    assert_none("files that import each other in a circle", &circles);
}

#[test]
fn every_file_states_its_purpose() {
    let headless = rust_files()
        .iter()
        .filter(|path| !read(path).starts_with("//! "))
        .map(|path| name(path))
        .collect::<Vec<_>>();
    assert_none("files without a `//!` head", &headless);
}

#[test]
fn no_file_is_too_long_to_be_read_at_once() {
    let long = files("src", "rs")
        .iter()
        .chain(&files("integration-tests/src", "rs"))
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| (name(path), without_tests(&read(path)).lines().count()))
        .filter(|(_, lines)| *lines > LINES_AT_MOST)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect::<Vec<_>>();
    assert_none(&format!("files of more than {LINES_AT_MOST} lines before their tests"), &long);
}

/// The layer of a module, counted from the bottom.
fn layer(module: &str) -> usize {
    LAYERS
        .iter()
        .position(|layer| layer.contains(&module))
        .unwrap_or_else(|| panic!("`{module}` has no place in the list of layers in this test"))
}

/// The top module that a file belongs to: `src/proxy/reply.rs` to `proxy`.
fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).expect("it is a file of the crate");
    let first = inside.components().next().expect("a file has a name");
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The top modules that `text` names after `crate::`, also in a list (`use crate::{a, b::C}`).
fn used_modules(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |t, line| t + line + "\n");
    let mut used = Vec::new();
    for (at, marker) in code.match_indices("crate::") {
        let rest = &code[at + marker.len()..];
        match rest.strip_prefix('{') {
            Some(list) => used.extend(list_heads(list)),
            None => used.push(word(rest)),
        }
    }
    used.retain(|module| module.starts_with(|c: char| c.is_ascii_lowercase()));
    used
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first word of each entry of a `{...}` list after its opening brace.
fn list_heads(list: &str) -> Vec<String> {
    let (mut depth, mut heads, mut fresh) = (1_usize, Vec::new(), true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if c.is_alphabetic() && depth == 1 && fresh => {
                heads.push(word(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

#[test]
fn used_modules_are_found_in_plain_and_nested_lists() {
    let text = "use crate::clock;\nuse crate::{\n    rules::{Rule, Set},\n    target::Target,\n};\n\
                // crate::admin in a comment\nlet x = crate::store::take();";
    assert_eq!(used_modules(text), ["clock", "rules", "target", "store"]);
}

#[test]
fn each_layer_uses_only_the_layers_before_it() {
    let mut upward = Vec::new();
    for path in files("src", "rs") {
        let module = module_of(&path);
        let own = layer(&module);
        for used in used_modules(without_tests(&read(&path))) {
            if layer(&used) > own {
                upward.push(format!("{} uses crate::{used}", name(&path)));
            }
        }
    }
    assert_none("modules that use a layer above their own", &upward);
}

#[test]
fn only_the_store_names_the_redis_client() {
    let others = files("src", "rs")
        .iter()
        .filter(|path| module_of(path) != "store" && read(path).contains("fred::"))
        .map(|path| name(path))
        .collect::<Vec<_>>();
    assert_none("files outside of `store` that name fred", &others);
}

#[test]
fn every_lua_script_is_loaded_and_documents_its_arguments() {
    let code: String = files("src", "rs").iter().map(|path| read(path)).collect();
    let mut trouble = Vec::new();
    for path in files("lua", "lua") {
        let script = name(&path);
        let inside = script.trim_start_matches("lua/");
        if !code.contains(&format!("\"{inside}\"")) {
            trouble.push(format!("{script} is not loaded"));
        }
        if !read(&path).starts_with("--") {
            trouble.push(format!("{script} has no head comment"));
        }
    }
    assert_none("Lua files", &trouble);
}

/// The literal after each `include_str!(` of the code.
fn included(code: &str) -> impl Iterator<Item = &str> {
    let literals = code.split("include_str!(\"").skip(1);
    literals.map(|rest| rest.split('"').next().unwrap_or(rest))
}

#[test]
fn the_published_crate_has_every_file_that_it_is_built_from() {
    let list = Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline", "--package", "tidegate"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let packed = String::from_utf8(list.stdout).expect("paths are UTF-8");
    let packed: Vec<PathBuf> = packed.lines().map(|line| root().join(line)).collect();
    let mut wanted = files("src", "rs");
    wanted.extend(files("lua", "lua"));
    for path in files("src", "rs") {
        let folder = path.parent().expect("a file is in a folder");
        wanted.extend(included(&code(&path)).map(|file| folder.join(file)));
    }
    let exact = |path: &PathBuf| path.canonicalize().expect("an included file is there");
    let packed: HashSet<PathBuf> = packed.iter().filter(|path| path.exists()).map(exact).collect();
    wanted.iter_mut().for_each(|path| *path = exact(path));
    assert!(wanted.iter().any(|path| path.ends_with("config/signatures.yaml")), "{wanted:?}");
    let missing: Vec<String> =
        wanted.iter().filter(|path| !packed.contains(*path)).map(|path| name(path)).collect();
    assert_none("files that `cargo publish` would leave out", &missing);
}

#[test]
fn every_metric_is_documented() {
    let names = metric_names();
    let source = read(&root().join("src/observability/metrics/families.rs"));
    let is_metric = |line: &&str| line.contains("Family::") || line.ends_with("::default(),");
    // The information about the build is made elsewhere.
    let registered = source.lines().filter(is_metric).count() + 1;
    assert_eq!(names.len(), registered, "this test sees every metric: {names:?}");
    let docs = read(&root().join("docs/metrics.md"));
    let missing =
        names.into_iter().filter(|n| !docs.contains(&format!("`{n}`"))).collect::<Vec<_>>();
    assert_none("metrics that docs/metrics.md does not name", &missing);
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not find itself.
    let marks = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X"],
        ["todo", "!("],
        ["unimplemented", "!("],
        ["#[ig", "nore"],
    ]
    .map(|parts| parts.concat());
    let texts = rust_files().into_iter().chain(files("lua", "lua")).chain(files("config", "yaml"));
    let mut left = Vec::new();
    for path in texts {
        for (number, line) in read(&path).lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                left.push(format!("{}:{}: {}", name(&path), number + 1, line.trim()));
            }
        }
    }
    assert_none("half-done marks", &left);
}
