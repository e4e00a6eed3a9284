//! The explanation of a trip: its cause, and the blocks that led to it.

use std::{fmt, str::FromStr};

use crate::classify::verdict::Verdict;

words! {
    /// Why a cooldown began.
    pub enum Cause {
        /// Enough blocks in a row (`after`).
        Streak = "streak",
        /// Enough of the last verdicts were blocks (`ratio`).
        Ratio = "ratio",
        /// A block named its own wait (`respect_retry_after`).
        Named = "retry_after",
        /// The probe was blocked.
        Probe = "probe",
        /// The site stopped answering (`silence`).
        Silence = "silence",
        /// Another probe was blocked after so many that the scope is hopeless.
        Hopeless = "hopeless",
        /// The site announces that its limit is used up (`site_limits`). Not a block, and without
        /// effect on the learned rate.
        SiteLimit = "site_limit",
        /// The rule's limit on error responses was reached (`errors`). Not a block either.
        Errors = "errors",
        /// A manual trip.
        Manual = "hand",
    }
}

impl Cause {
    /// Whether it is a pause with a known end. A pause needs no probe and does not change the
    /// learned rate.
    #[must_use]
    pub const fn is_pause(self) -> bool {
        matches!(self, Self::SiteLimit | Self::Errors)
    }
}

/// The word is not a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no cause of a cooldown")]
pub struct UnknownCause;

impl FromStr for Cause {
    type Err = UnknownCause;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word).ok_or(UnknownCause)
    }
}

/// The last of the blocks that built the streak or the share: the one that tripped. `None` for a
/// manual trip.
#[must_use]
pub fn culprit(blamed: &str) -> Option<Verdict> {
    blamed.chars().last().and_then(Verdict::of_letter)
}

/// The number of blocks of each type, in the order of [`Verdict::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocks([u16; Verdict::ALL.len()]);

impl Blocks {
    /// Counts the letters ([`Verdict::letter`]); ignores any other character.
    #[must_use]
    pub fn of_letters(letters: &str) -> Self {
        let mut blocks = Self::default();
        for verdict in letters.chars().filter_map(Verdict::of_letter) {
            let count = &mut blocks.0[verdict as usize];
            *count = count.saturating_add(1);
        }
        blocks
    }

    /// The types with at least one block, and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u16)> + '_ {
        Verdict::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (verdict, count)) in self.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{count} {verdict}")?;
        }
        Ok(())
    }
}
