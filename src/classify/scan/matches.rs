//! Evaluates the candidate signatures on a page that was read.

use std::sync::Arc;

use super::Text;
use crate::classify::{
    BodyEnd,
    compiled::{Marks, Missing},
    family::Extent,
    head::is_refusal,
    page::Page,
    signature::Action,
    trace::Trace,
    verdict::{Evidence, Judgement},
};

/// The matches of the candidates on one page.
#[derive(Debug, Default)]
pub(super) struct Matches {
    pub(super) decided: Option<Judgement>,
    pub(super) decoys: Vec<Arc<str>>,
    pub(super) logged: Vec<Arc<str>>,
    /// The evidence of a family that matches in part, if no signature decides.
    pub(super) suspect: Option<Evidence>,
}

impl Text {
    /// Evaluates all candidates; the first that matches decides.
    pub(super) fn evaluate(
        &self,
        page: &Page,
        end: BodyEnd,
        mut trace: Option<&mut Trace>,
    ) -> Matches {
        let mut matches = Matches::default();
        if self.candidates.is_empty() {
            return matches;
        }
        let status = self.context.status;
        let is_complete = end == BodyEnd::Complete && self.left > 0;
        let extent = Extent { status, is_complete };
        let findings = self.classifier.strings.find(page, &self.source, extent, trace.is_some());
        let has_strings = findings.has_any();
        let has_many_links =
            || !is_refusal(status) && page.is_html() && findings.families.has_many_links();
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
                    let is_near = missing == Missing::Family && matches.suspect.is_none();
                    if is_near && findings.families.is_suspect() {
                        matches.suspect = signature.suspicion(&findings);
                    }
                    if let Some(trace) = &mut trace {
                        trace.add(signature, signature.describe(missing));
                    }
                }
                Marks::All(_)
                    if visible > signature.max_visible_text(status, &page.title)
                        || has_many_links() && signature.requires_wall_shape() =>
                {
                    // The prefilter skips pages with many links, so their decoys are not counted.
                    if !has_many_links() {
                        matches.decoys.push(name());
                    }
                    if let Some(trace) = &mut trace {
                        let links = if has_many_links() { " and many links" } else { "" };
                        let why =
                            format!("the shape of a wall: {visible} characters of text{links}");
                        trace.add(signature, why);
                    }
                }
                Marks::All(_) if signature.source.action == Action::Log => {
                    matches.logged.push(name())
                }
                Marks::All(found) if matches.decided.is_none() => {
                    let evidence = signature.evidence(found);
                    matches.decided = Some(self.context.decided(&signature.source, evidence));
                }
                Marks::All(_) => {}
            }
        }
        matches
    }
}
