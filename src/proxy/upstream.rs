//! The sites' side: looks up names, judges and dials addresses (directly or through an upstream proxy), keeps
//! connections, sends requests, and waits for the heads of responses.

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
