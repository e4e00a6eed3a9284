//! Runs the fuzz target `classifier` of `targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::classifier(data));
