//! Signals, and what still runs when they come.
