//! Where scopes live: one trait, in memory or in Redis.
