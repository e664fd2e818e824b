//! Feeds the `ticket` target with what libFuzzer finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure_fuzz::ticket(bytes));
