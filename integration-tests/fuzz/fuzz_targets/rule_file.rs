//! Feeds `targets::rule_file`; see there.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::rule_file(data));
