//! Stores every revision and every render of a wiki, and serves them over HTTP.

fn main() {}
