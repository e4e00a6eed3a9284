//! HTTP conformance, judged by the received bytes: the built binary between raw sockets, one table
//! row per case, and a site that records each byte.
//!
//! `docs/security.md` explains the cases and maps their groups to these files.

mod answers;
mod bench;
mod frames;
mod hostile;
mod interim;
mod limits;
mod origin;
mod requests;
mod tunnels;
mod uploads;
mod websocket;
