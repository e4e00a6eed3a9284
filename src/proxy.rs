//! The way of a request, top to bottom.

pub mod auth;
pub mod egress;
pub mod resolve;
pub mod wire;
