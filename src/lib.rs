//! Tidegate: an HTTP forward proxy that keeps a whole fleet of crawlers polite.

pub mod admin;
pub mod app;
pub mod bucket;
pub mod ca;
pub mod classify;
pub mod cli;
pub mod clock;
pub mod config;
pub mod cooldown;
pub mod event;
pub mod explain;
pub mod gate;
pub mod metrics;
pub mod proxy;
pub mod rules;
pub mod secret;
pub mod settings;
pub mod shutdown;
pub mod store;
pub mod target;
pub mod verdict;
