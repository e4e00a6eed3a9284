//! The local certificate authority.
