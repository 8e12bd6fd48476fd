//! How often tests kill a program.

/// The variable with the number of kills of each test. `cargo xtask nightly` sets it.
const KILL_ROUNDS: &str = "RASHOMON_KILL_ROUNDS";

/// The number of kills of a test: that of the environment, or else this one, with which the test is short.
pub(crate) fn kill_rounds(short: u64) -> u64 {
    std::env::var(KILL_ROUNDS).ok().map_or(short, |number| number.parse().expect("a number of kills"))
}
