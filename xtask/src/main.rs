//! The project's own commands: test, tidy, bench.

fn main() {}
