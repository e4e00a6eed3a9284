//! Detects a wall without marks: plain refusals (a 503, a 400, a redirect to the front page) of all
//! pages at once.
//!
//! A single such response concerns its page, or a fault of the site. But a site that answered well
//! and then refuses one page after another has begun to refuse the client. The change is the sign,
//! not the status. With a learned rate, the store also compares a run of 503s with their usual share
//! ([`crate::limiter::shares`]).

/// This many different pages in a row that are refused with a 503 are a wall.
const BUSY: u32 = 5;
/// The same for a response that missing pages also get, and for a single page that is requested repeatedly.
const UNCLEAR: u32 = 20;

/// How a page was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainRefusal {
    /// With a 503.
    Busy,
    /// With a 400 or a redirect to the front page, which some sites send for missing pages.
    Unclear,
}

/// Refusals in a row, as seen by one member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Whether the scope has ever returned a good page.
    answers: bool,
    run: u32,
    busy: bool,
    /// The first page of the run.
    page: u64,
    /// Whether the run contains a different page.
    differ: bool,
}

impl Refusals {
    /// A good page was returned.
    pub fn answered(&mut self) {
        *self = Self { answers: true, ..Self::default() };
    }

    /// `page` was refused. Returns true if the run is a wall; then the next run begins.
    pub fn refused(&mut self, how: PlainRefusal, page: u64) -> bool {
        let busy = how == PlainRefusal::Busy;
        if self.run == 0 {
            (self.page, self.busy) = (page, true);
        }
        self.busy &= busy;
        self.differ |= page != self.page;
        self.run += 1;
        let enough = if self.busy && self.differ { BUSY } else { UNCLEAR };
        let unclear = !self.busy && !self.differ;
        if !self.answers || unclear || self.run < enough {
            return false;
        }
        self.answered();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(good: bool, refusals: impl IntoIterator<Item = (PlainRefusal, u64)>) -> Option<usize> {
        let mut seen = Refusals::default();
        if good {
            seen.answered();
        }
        refusals.into_iter().position(|(how, page)| seen.refused(how, page))
    }

    #[test]
    fn five_pages_in_a_row_that_are_refused_with_a_503_are_a_wall() {
        assert_eq!(after(true, (0..9).map(|page| (PlainRefusal::Busy, page))), Some(4));
        assert_eq!(after(true, (0..40).map(|_| (PlainRefusal::Busy, 7))), Some(19), "one page");
    }

    #[test]
    fn statuses_of_dead_pages_need_more_responses_from_several_pages() {
        assert_eq!(after(true, (0..40).map(|page| (PlainRefusal::Unclear, page))), Some(19));
        assert_eq!(after(true, (0..40).map(|_| (PlainRefusal::Unclear, 7))), None);
        let mixed = (0..40)
            .map(|page| (if page == 2 { PlainRefusal::Unclear } else { PlainRefusal::Busy }, page));
        assert_eq!(after(true, mixed), Some(19));
    }

    #[test]
    fn a_site_that_never_answered_well_has_not_changed() {
        assert_eq!(after(false, (0..40).map(|page| (PlainRefusal::Busy, page))), None);
    }

    #[test]
    fn a_good_page_begins_the_count_anew() {
        let mut seen = Refusals::default();
        for page in 0..100 {
            if page % 4 == 0 {
                seen.answered();
            }
            assert!(!seen.refused(PlainRefusal::Busy, page));
        }
    }
}
