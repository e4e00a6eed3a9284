//! Runs the fuzz target `store` of `targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::store(data));
