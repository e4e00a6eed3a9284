//! What a judgement is worth as evidence of a wall.

use std::sync::Arc;

use crate::classify::verdict::{Confidence, Evidence, Judgement, Verdict};

/// A plain refusal that comes for all pages at once.
pub(super) fn refused(judgement: &Judgement) -> Judgement {
    let status = judgement.status.unwrap_or_default();
    let evidence = Evidence {
        signature: Arc::from("refused-everywhere"),
        vendor: None,
        place: "status".to_owned(),
        excerpt: format!("{status}, for one page after the other"),
    };
    Judgement {
        verdict: Verdict::Forbidden,
        confidence: Confidence::Low,
        evidence: Some(Box::new(evidence)),
        ..judgement.clone()
    }
}

/// A wall that shows itself or names its wait is a sure sign; a refusal without more may be about one page.
pub(super) fn is_sure(judgement: &Judgement) -> bool {
    judgement.retry_after.is_some()
        || judgement.confidence == Confidence::High && judgement.verdict != Verdict::BlankPage
}
