//! What the signatures that may match say of a page that was read.

use std::sync::Arc;

use super::Text;
use crate::classify::{
    BodyEnd,
    compiled::{Marks, Missing},
    family::Seen,
    head::is_refusal,
    page::Page,
    signature::Action,
    trace::Trace,
    verdict::{Evidence, Judgement},
};

/// What the candidates say of a page.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) decided: Option<Judgement>,
    pub(super) decoys: Vec<Arc<str>>,
    pub(super) logged: Vec<Arc<str>>,
    /// What a family of walls comes near to, if none of the others decides.
    pub(super) suspect: Option<Evidence>,
}

impl Text {
    /// Asks all candidates: the first that matches decides.
    pub(super) fn ask(&self, page: &Page, end: BodyEnd, mut trace: Option<&mut Trace>) -> Answers {
        let mut answers = Answers::default();
        if self.candidates.is_empty() {
            return answers;
        }
        let status = self.ground.status;
        let is_complete = end == BodyEnd::Complete && self.left > 0;
        let seen = Seen { status, is_complete };
        let findings = self.classifier.strings.find(page, &self.source, seen, trace.is_some());
        let has_strings = findings.has_any();
        let leads_on = || !is_refusal(status) && page.is_html() && findings.look.leads_on();
        for number in &self.candidates {
            let signature = &self.classifier.signatures[*number];
            if !signature.applies_to(page.is_html())
                || !has_strings && !signature.may_match_without_strings()
            {
                continue;
            }
            let name = || Arc::clone(&signature.source.name);
            let visible = page.visible.count();
            match signature.marks(&findings) {
                Marks::None => {}
                Marks::Some(missing) => {
                    let is_near = missing == Missing::Family && answers.suspect.is_none();
                    if is_near && findings.look.is_suspect() {
                        answers.suspect = signature.suspicion(&findings);
                    }
                    if let Some(trace) = &mut trace {
                        trace.add(signature, signature.describe(missing));
                    }
                }
                Marks::All(_)
                    if visible > signature.most_text(status, &page.title)
                        || leads_on() && signature.wants_wall() =>
                {
                    // Of a page that leads on the quick way reads nothing.
                    if !leads_on() {
                        answers.decoys.push(name());
                    }
                    if let Some(trace) = &mut trace {
                        let links = if leads_on() { " and many links" } else { "" };
                        let why =
                            format!("the shape of a wall: {visible} characters of text{links}");
                        trace.add(signature, why);
                    }
                }
                Marks::All(_) if signature.source.action == Action::Log => {
                    answers.logged.push(name())
                }
                Marks::All(found) if answers.decided.is_none() => {
                    let evidence = signature.evidence(found);
                    answers.decided = Some(self.ground.decided(&signature.source, evidence));
                }
                Marks::All(_) => {}
            }
        }
        answers
    }
}
