//! The process itself: its clock, background runtimes, signals, and the notifications to systemd;
//! and closed sets of words.

#[macro_use]
mod words;

pub mod background;
pub mod clock;
pub mod shutdown;
pub mod systemd;
