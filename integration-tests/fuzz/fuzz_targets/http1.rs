//! Feeds `targets::http1`; see there.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::http1(data));
