//! Runs the fuzz target `fields` of `targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::fields(data));
