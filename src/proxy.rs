//! The way of a request, top to bottom.

mod accept;
pub mod auth;
mod context;
pub mod egress;
pub mod resolve;
pub mod wire;

pub use accept::serve;
pub use context::Context;
