#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rashomon_testing::fuzz_targets::url(input));
