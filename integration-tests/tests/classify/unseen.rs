//! Walls of many vendors and languages, and the ordinary pages that are most similar to them:
//! `unseen.yaml`. Nearly none has a signature of its own, so the families must find them.

use serde::Deserialize;
use tidegate::classify::verdict::Verdict;

use crate::page;

/// The pages.
const FILE: &str = include_str!("unseen.yaml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pages {
    pub(super) walls: Vec<Example>,
    pub(super) ordinary: Vec<Example>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Example {
    kind: String,
    language: String,
    #[serde(default = "ordinary")]
    verdict: Verdict,
    #[serde(default = "ok")]
    pub(super) status: u16,
    /// Its description.
    #[serde(default = "html", rename = "type")]
    content: String,
    #[serde(default)]
    title: String,
    body: String,
}

const fn ok() -> u16 {
    200
}

fn html() -> String {
    "text/html; charset=utf-8".to_owned()
}

const fn ordinary() -> Verdict {
    Verdict::Ok
}

impl Example {
    /// Whether its styles before the first word are longer than the scanned part of a page with
    /// status 200.
    pub(super) fn begins_beyond_the_limit(&self) -> bool {
        self.body.starts_with("{style}")
    }

    /// The body as sent.
    fn source(&self) -> String {
        let Self { language, title, body, .. } = self;
        if !self.content.starts_with("text/html") {
            return body.clone();
        }
        let style = ".card{margin:0 auto;padding:12px 16px}".repeat(500);
        let body = body.replace("{style}", &format!("<style>{style}</style>"));
        let title =
            if title.is_empty() { String::new() } else { format!("<title>{title}</title>") };
        format!(
            "<!DOCTYPE html><html lang={language}><head><meta charset=utf-8>{title}</head>\
             <body>{body}</body></html>"
        )
    }

    /// The error of its verdict under `status`, if any.
    pub(super) fn mistake(&self, status: u16) -> Option<String> {
        let response = page(status, &self.source()).with("content-type", &self.content);
        let judgement = response.judgement();
        let evidence = judgement.evidence.as_ref().map(|evidence| evidence.signature.to_string());
        (judgement.verdict != self.verdict).then(|| {
            format!("{} ({status}): {} by {evidence:?}", self.kind, judgement.verdict.as_str())
        })
    }
}

impl Pages {
    pub(super) fn read(file: &str) -> Self {
        serde_yaml::from_str(file).unwrap()
    }
}

#[test]
fn walls_that_no_signature_names_are_found_in_many_languages_and_by_the_right_word() {
    let walls = Pages::read(FILE).walls;
    let languages: std::collections::HashSet<&str> =
        walls.iter().map(|wall| &*wall.language).collect();
    assert!(walls.len() > 140 && languages.len() > 20, "{} {}", walls.len(), languages.len());
    let mistakes: Vec<String> = walls.iter().filter_map(|wall| wall.mistake(wall.status)).collect();
    assert_eq!(mistakes, Vec::<String>::new());
}

#[test]
fn ordinary_pages_with_the_words_and_widgets_of_walls_are_ordinary_under_404_too() {
    let ordinary = Pages::read(FILE).ordinary;
    assert!(ordinary.len() > 200, "{}", ordinary.len());
    let mut mistakes: Vec<String> =
        ordinary.iter().filter_map(|page| page.mistake(page.status)).collect();
    let found = ordinary.iter().filter(|page| matches!(page.status, 200 | 400 | 410));
    mistakes.extend(found.filter_map(|page| page.mistake(404)));
    assert_eq!(mistakes, Vec::<String>::new());
}
