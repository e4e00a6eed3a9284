//! The cooldown state machine: when to trip, for how long, who probes.
