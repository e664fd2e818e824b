//! Runs the `message` fuzz target under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure_fuzz::message(bytes));
