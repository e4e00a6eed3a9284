//! The limiter's decisions: when a request may go, when a scope cools down, and which rate a site tolerates.
//!
//! Everything here is pure: no I/O, no waiting and no clock of its own. Every function takes the store's time. The
//! scripts in `lua/` make the same decisions in Redis; one test suite drives both.

pub mod bucket;
pub mod cooldown;
pub mod errors;
pub mod learn;
pub mod load;
pub mod policy;
pub mod refusals;
pub mod shares;
pub mod slots;
