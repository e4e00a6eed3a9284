//! What happened: one event is one log line and its metrics.
