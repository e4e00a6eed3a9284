//! The sites' side: names are looked up, addresses judged and dialled, directly or through an
//! upstream proxy; connections are kept; requests are sent, and heads of responses awaited.

pub mod egress;
mod exhaustion;
pub(super) mod forward;
pub(super) mod interim;
pub(super) mod look_up;
pub(super) mod pool;
pub mod resolve;
pub mod tls;
pub(super) mod upload;
pub(super) mod via;
