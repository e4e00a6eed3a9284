//! Verdicts on whole responses: every signature against its own examples, and the traps that detectors fall into.
#![allow(clippy::unwrap_used)]

use tidegate::classify::{Classifier, builtin_signatures};

#[test]
fn every_built_in_signature_matches_what_it_should_and_nothing_that_it_should_not() {
    let signatures = builtin_signatures();
    assert!(signatures.len() > 50, "the file is not read in full");
    let mut failures = Vec::new();
    for signature in &signatures {
        let both = [true, false].map(|side| signature.expect.iter().any(|e| e.matches == side));
        assert_eq!(both, [true, true], "{} needs an example on both sides", signature.name);
        assert!(signature.seen.is_some() && signature.trap.is_some(), "{}", signature.name);
        failures.extend(signature.failed_examples().unwrap());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(Classifier::builtin(), Classifier::builtin());
}
