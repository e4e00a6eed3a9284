//! Certificates: the trusted ones, and those that the local authority issues for interception.

pub mod ca;
pub mod roots;
