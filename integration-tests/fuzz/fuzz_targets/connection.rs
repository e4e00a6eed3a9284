//! Runs the fuzz target `connection` of `targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::ALL.iter().find(|(name, _)| *name == "connection").expect("it is there").1(data));
