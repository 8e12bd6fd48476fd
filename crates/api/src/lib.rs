//! The HTTP API of Rashomon.
