//! Requests to sites and their answers.
