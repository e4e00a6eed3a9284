//! Runs the fuzz target `rule_file` of `targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::rule_file(data));
