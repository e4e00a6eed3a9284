//! Certificates: which ones are trusted, and the ones that the local authority issues for interception.

pub mod ca;
pub mod roots;
