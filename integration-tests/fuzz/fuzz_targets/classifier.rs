//! Feeds `targets::classifier`; see there.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::classifier(data));
