//! The token bucket with its quotas: pure arithmetic on the store's clock.
