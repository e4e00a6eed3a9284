//! Links of the pages lead to files and headings that exist.

use std::path::Path;

use super::{assert_none, name, pages, read};

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut links = 0;
    let mut dead = Vec::new();
    for page in pages() {
        for link in links_of(&read(&page)) {
            links += 1;
            if !leads_somewhere(&page, &link) {
                dead.push(format!("{}: {link}", name(&page)));
            }
        }
    }
    assert!(links >= 30, "{links} links");
    assert_none("links that lead nowhere", &dead);
}

/// The targets of `[text](target)`, but those elsewhere on the web.
fn links_of(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.to_owned());
    targets
        .filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
        .collect()
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, heading) = link.split_once('#').map_or((link, None), |(f, h)| (f, Some(h)));
    let folder = page.parent().expect("a file is in a folder");
    let target = if file.is_empty() { page.to_owned() } else { folder.join(file) };
    match heading {
        Some(heading) => target.is_file() && headings(&read(&target)).iter().any(|h| h == heading),
        None => target.exists(),
    }
}

/// The headings as links name them: lower case, dashes for blanks, without punctuation.
fn headings(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let titles = lines.map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let slug = |title: &str| title.chars().filter(kept).collect::<String>();
    titles.map(|title| slug(title).to_lowercase().replace(' ', "-")).collect()
}
