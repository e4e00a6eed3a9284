//! Runs the fuzz target `http1` of `targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::http1(data));
