//! Walls of many makers and languages, and the ordinary pages that are nearest to them: `unseen.yaml`.
//! Nearly none has a signature of its own, so that what is found is found by the families' rules.

use serde::Deserialize;
use tidegate::classify::verdict::Verdict;

use crate::page;

/// The pages.
const FILE: &str = include_str!("unseen.yaml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    walls: Vec<Example>,
    ordinary: Vec<Example>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    kind: String,
    language: String,
    #[serde(default = "ordinary")]
    verdict: Verdict,
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    title: String,
    body: String,
}

const fn ok() -> u16 {
    200
}

const fn ordinary() -> Verdict {
    Verdict::Ok
}

impl Example {
    fn html(&self) -> String {
        let Self { language, title, body, .. } = self;
        let title =
            if title.is_empty() { String::new() } else { format!("<title>{title}</title>") };
        format!(
            "<!DOCTYPE html><html lang={language}><head><meta charset=utf-8>{title}</head>\
             <body>{body}</body></html>"
        )
    }

    /// What is wrong with its verdict under `status`.
    fn mistake(&self, status: u16) -> Option<String> {
        let judgement = page(status, &self.html()).judgement();
        let evidence = judgement.evidence.as_ref().map(|evidence| evidence.signature.to_string());
        (judgement.verdict != self.verdict).then(|| {
            format!("{} ({status}): {} by {evidence:?}", self.kind, judgement.verdict.as_str())
        })
    }
}

fn pages() -> Pages {
    serde_yaml::from_str(FILE).unwrap()
}

#[test]
fn walls_that_no_signature_names_are_found_in_many_languages_and_by_the_right_word() {
    let walls = pages().walls;
    let languages: std::collections::HashSet<&str> =
        walls.iter().map(|wall| &*wall.language).collect();
    assert!(walls.len() > 140 && languages.len() > 20, "{} {}", walls.len(), languages.len());
    let mistakes: Vec<String> = walls.iter().filter_map(|wall| wall.mistake(wall.status)).collect();
    assert_eq!(mistakes, Vec::<String>::new());
}

#[test]
fn ordinary_pages_with_the_words_and_widgets_of_walls_are_ordinary_under_404_too() {
    let ordinary = pages().ordinary;
    assert!(ordinary.len() > 200, "{}", ordinary.len());
    let mut mistakes: Vec<String> =
        ordinary.iter().filter_map(|page| page.mistake(page.status)).collect();
    let found = ordinary.iter().filter(|page| matches!(page.status, 200 | 400 | 410));
    mistakes.extend(found.filter_map(|page| page.mistake(404)));
    assert_eq!(mistakes, Vec::<String>::new());
}
