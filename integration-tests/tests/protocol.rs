//! HTTP conformance, judged by the received bytes: the built binary between raw sockets, one table
//! row per case, and a site that records each byte.
//!
//! `docs/security.md` explains the cases and maps their groups to these files.

#[path = "protocol/answers.rs"]
mod answers;
#[path = "protocol/bench.rs"]
mod bench;
#[path = "protocol/frames.rs"]
mod frames;
#[path = "protocol/hostile.rs"]
mod hostile;
#[path = "protocol/interim.rs"]
mod interim;
#[path = "protocol/limits.rs"]
mod limits;
#[path = "protocol/origin.rs"]
mod origin;
#[path = "protocol/requests.rs"]
mod requests;
#[path = "protocol/tunnels.rs"]
mod tunnels;
#[path = "protocol/uploads.rs"]
mod uploads;
#[path = "protocol/websocket.rs"]
mod websocket;
