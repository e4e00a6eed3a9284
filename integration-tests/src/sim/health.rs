//! The health of a server, or of one member's connection to it.

use tokio::sync::watch;

/// The health of a server or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Calls are executed and answered.
    Well,
    /// Calls are executed once it is well again, even if the caller has given up.
    Frozen,
    /// Calls are lost.
    Gone,
    /// Calls are executed, but the replies are lost.
    Mute,
}

/// A health that changes over time.
#[derive(Debug)]
pub(super) struct HealthState(watch::Sender<Health>);

impl Default for HealthState {
    fn default() -> Self {
        Self(watch::Sender::new(Health::Well))
    }
}

impl HealthState {
    pub(super) fn set(&self, health: Health) {
        self.0.send_replace(health);
    }

    /// Waits until a call gets through; forever if it is lost.
    pub(super) async fn takes_calls(&self) {
        let mut health = self.0.subscribe();
        if *health.borrow_and_update() == Health::Gone {
            std::future::pending::<()>().await;
        }
        health.wait_for(|health| !matches!(health, Health::Frozen | Health::Gone)).await.ok();
    }

    /// Waits until a reply gets through; forever if it is lost.
    pub(super) async fn answers(&self) {
        if *self.0.borrow() == Health::Mute {
            std::future::pending::<()>().await;
        }
    }
}
