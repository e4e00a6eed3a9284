//! Runs the fuzz target `request_target` of `targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::request_target(data));
