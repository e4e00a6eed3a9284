//! `docs/rule-file.md`, generated from the key table.

use super::keys::{Default, Key, SECTIONS, Section};

/// The head of the page, which applies to all keys.
const HEAD: &str = include_str!("reference/head.md");

/// The whole page.
#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for section in SECTIONS {
        write_section(section, &mut page);
    }
    page
}

/// The place of a section in the file.
fn place(section: &Section) -> String {
    match section.name {
        "file" => "Top level".into(),
        "rule" => "`rules[]`: a rule".into(),
        "match" | "each_user" | "learn" | "cooldown" | "retry" => {
            format!("`rules[].{}`", section.name)
        }
        "detect" => "`rules[].detect[]`: a signature".into(),
        "location" => "`rules[].detect[].location`".into(),
        "included" => "An included file".into(),
        "expect" => "`rules[].detect[].expect[]`: an example".into(),
        name => format!("`{name}`"),
    }
}

fn write_section(section: &Section, page: &mut String) {
    page.push_str(&format!("\n## {}\n\n{}\n\n", place(section), section.doc));
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for Key { name, kind, default, doc } in section.keys {
        let default = match default {
            Default::Required => "required".into(),
            Default::Absent(what) => (*what).to_owned(),
            Default::Is(text) => format!("`{text}`"),
        };
        let (value, default, doc) = (escape(&kind.words()), escape(&default), escape(doc));
        page.push_str(&format!("| `{name}` | {value} | {default} | {doc} |\n"));
    }
}

/// A `|` would end the cell.
fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
