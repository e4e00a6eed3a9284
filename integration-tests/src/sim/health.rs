//! Whether calls get through, on a server or on one member's line to it.

use tokio::sync::watch;

/// How a server, or a line, does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Calls are run and answered.
    Well,
    /// Not now: what comes is run once it is well again, though nobody may wait for the answer any more.
    Frozen,
    /// What comes is lost.
    Gone,
    /// What comes is run, and the answer is lost.
    Mute,
}

/// A way that calls take.
#[derive(Debug)]
pub(super) struct Way(watch::Sender<Health>);

impl Default for Way {
    fn default() -> Self {
        Self(watch::Sender::new(Health::Well))
    }
}

impl Way {
    pub(super) fn set(&self, health: Health) {
        self.0.send_replace(health);
    }

    /// Until a call gets through; for ever where it is lost.
    pub(super) async fn takes_calls(&self) {
        let mut health = self.0.subscribe();
        if *health.borrow_and_update() == Health::Gone {
            std::future::pending::<()>().await;
        }
        health.wait_for(|health| !matches!(health, Health::Frozen | Health::Gone)).await.ok();
    }

    /// Until an answer gets through; for ever where it is lost.
    pub(super) async fn answers(&self) {
        if *self.0.borrow() == Health::Mute {
            std::future::pending::<()>().await;
        }
    }
}
