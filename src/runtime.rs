//! What the process itself needs: a clock, threads with a runtime of their own, the signals that end it, and what it
//! reports to systemd.

pub mod background;
pub mod clock;
pub mod shutdown;
pub mod systemd;
