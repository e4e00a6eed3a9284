//! The output for operators: events and their log lines, metrics, traces, and the status that the
//! API, the page and the commands share.

pub mod event;
pub mod metrics;
pub mod status;
pub mod traces;
