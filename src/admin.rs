//! The admin port: metrics, health, API, status page.
