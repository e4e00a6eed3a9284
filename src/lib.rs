//! Tidegate: an HTTP forward proxy that keeps a whole fleet of crawlers polite.
//!
//! Every request takes a token that the fleet shares, every response is judged, and when a site starts to block, one
//! shared cooldown holds back what has not been sent yet, on every member at once. `ARCHITECTURE.md` has the
//! invariants; this is the map.
//!
//! # The way of a request
//!
//! [`proxy`] tells it top to bottom, and each step is one call:
//!
//! ```text
//! accept -> target -> auth -> rule -> hold -> connect -> last look -> send -> observe -> report -> relay
//! proxy     target    proxy   rules   gate    proxy      gate         proxy   classify   gate      proxy
//! ```
//!
//! # Modules in reading order
//!
//! Start at [`target`] and [`rules`], then [`gate`], then [`proxy`]; the rest explains itself on the way.
//!
//! | layer | modules |
//! |---|---|
//! | small things that everything uses | [`apart`], [`clock`], [`secret`], [`target`] |
//! | decisions: no I/O, no waiting, no clock | [`rules`], [`verdict`], [`classify`], [`bucket`], [`cooldown`]; [`settings`] are plain values |
//! | telling | [`metrics`], [`event`], [`status`]; [`shutdown`] is how the process is told, [`notify`] how it tells systemd, [`roots`] are whom it trusts |
//! | shared state: in memory or in Redis, with the same answers | [`store`] (and the scripts in `lua/`) |
//! | holding: queues, order, waking | [`gate`] |
//! | the fleet as people see it | [`fleet`] |
//! | the network | [`ca`], [`proxy`], [`admin`] |
//! | the rule file | [`config`]; [`explain`] judges saved responses by it |
//! | putting together | [`app`], [`cli`], and `main.rs` |
//!
//! A module uses only what stands above it, and never another way round: decisions know neither the network nor the
//! rule file, the proxy knows the gate but not Redis, nothing knows the command line.

// The way of a request is one future, deep in others: rustc's own depth of 128 queries does not reach its end.
#![recursion_limit = "256"]

pub mod admin;
pub mod apart;
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
pub mod fleet;
pub mod gate;
pub mod learn;
pub mod metrics;
pub mod notify;
pub mod proxy;
pub mod roots;
pub mod rules;
pub mod secret;
pub mod settings;
pub mod shutdown;
pub mod status;
pub mod store;
pub mod target;
pub mod verdict;
