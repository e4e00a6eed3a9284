//! The way of a request, top to bottom.

mod accept;
mod context;

pub use accept::serve;
pub use context::Context;
