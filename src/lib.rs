//! Tidegate: an HTTP forward proxy that keeps a whole fleet of crawlers polite.

pub mod classify;
pub mod clock;
pub mod gate;
pub mod metrics;
pub mod rules;
pub mod secret;
pub mod settings;
pub mod target;
pub mod verdict;
