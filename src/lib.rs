//! Tidegate: an HTTP forward proxy that keeps a whole fleet of crawlers polite.
//!
//! Every request takes a token that the fleet shares. Every response is judged. When a site starts
//! to block, one shared cooldown holds all unsent requests, on every member at once.
//! `ARCHITECTURE.md` has the invariants; this page is the map.
//!
//! # The path of a request
//!
//! [`proxy`] shows it top to bottom, and each step is one call:
//!
//! ```text
//! accept -> target -> auth -> rule -> hold -> connect -> last check -> send -> observe -> report -> relay
//! proxy     target    proxy   rules   gate    proxy      gate          proxy   classify   gate      proxy
//! ```
//!
//! # Modules in reading order
//!
//! Start at [`target`] and [`rules`], then [`gate`], then [`proxy`].
//!
//! | layer | modules |
//! |---|---|
//! | the process, HTTP/1.1 framing, and where a request goes | [`runtime`], [`http1`], [`target`] |
//! | decisions: no I/O, no waiting, no clock | [`classify`], [`limiter`], [`rules`] |
//! | certificates, and what operators see | [`tls`], [`observability`] |
//! | shared state: in memory or in Redis, with the same answers | [`store`] (and the scripts in `lua/`) |
//! | the queues that hold requests and release them in order | [`gate`] |
//! | saved responses, judged by the rules | [`explain`] |
//! | the network | [`proxy`], [`admin`] |
//! | the rule file | [`config`] |
//! | the commands, and how a member is put together | [`cli`], and `main.rs` |
//!
//! A module uses only modules above it. Decisions know neither the network nor the rule file, the
//! proxy knows the gate but not Redis, and nothing knows the command line.

// The request path is one deeply nested future, for which rustc's default depth of 128 queries is
// not enough.
#![recursion_limit = "256"]

// First, for its macro `words!`.
#[macro_use]
pub mod runtime;

pub mod admin;
pub mod classify;
pub mod cli;
pub mod config;
pub mod explain;
pub mod gate;
pub mod http1;
pub mod limiter;
pub mod observability;
pub mod proxy;
pub mod rules;
pub mod store;
pub mod target;
pub mod tls;
