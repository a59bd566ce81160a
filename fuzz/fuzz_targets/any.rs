//! Every target: the program's name says which one.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| etude_fuzz::run(env!("CARGO_BIN_NAME"), data));
