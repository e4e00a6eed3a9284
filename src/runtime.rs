//! The process itself: its clock, background runtimes, signals, and the notifications to systemd.

pub mod background;
pub mod clock;
pub mod shutdown;
pub mod systemd;
