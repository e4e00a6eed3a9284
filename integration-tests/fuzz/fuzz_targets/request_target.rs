//! Feeds `targets::request_target`; see there.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::request_target(data));
