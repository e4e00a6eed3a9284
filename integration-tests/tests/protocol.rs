//! HTTP to the letter, judged by what the other side received: the built binary between raw sockets, one row of a
//! table per case, and a site that records each byte.
//!
//! What a case is for stands in `docs/security.md`, which maps the groups of cases to these files.

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
