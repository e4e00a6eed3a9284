//! A request at the gate.

use super::{Client, preferences::Urgency};
use crate::{runtime::clock::Instant, target::Target};

/// A request at the gate.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) target: Target,
    pub(super) client: Client,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    pub(super) seq: u64,
    pub(super) urgency: Urgency,
}
