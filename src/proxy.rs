//! The way of a request, top to bottom.
