//! The fuzz targets: a plain function for each program in `fuzz`. A test runs all targets over the seeds in
//! `fuzz/seeds`, and over the inputs in `fuzz/crashes`, which once made a target fail.
//!
//! A target accepts any bytes. It panics if a promise is broken.
//!
//! # Invariants
//!
//! - A target accepts any bytes, and panics only if a promise is broken.

mod access;
mod blocks;
mod histories;
mod http;
mod rows;

pub use access::{authorization, key_set, web_token};
pub use blocks::{any_block, block_round_trip};
pub use histories::{bzip2, gzip, json_lines, lzma, plain, seven_zip, xml, xz, zstd};
pub use http::{accept, batch, form, multipart, query, title, url};
pub use rows::{sqlite_rows, stored_rows};

/// A fuzz target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by name. Each target has a program of the same name in `fuzz/fuzz_targets`, and seeds in `fuzz/seeds`.
pub const TARGETS: &[Target] = &[
    ("accept", accept),
    ("any_block", any_block),
    ("authorization", authorization),
    ("batch", batch),
    ("block_round_trip", block_round_trip),
    ("bzip2", bzip2),
    ("form", form),
    ("gzip", gzip),
    ("json_lines", json_lines),
    ("key_set", key_set),
    ("lzma", lzma),
    ("multipart", multipart),
    ("plain", plain),
    ("query", query),
    ("seven_zip", seven_zip),
    ("sqlite_rows", sqlite_rows),
    ("stored_rows", stored_rows),
    ("title", title),
    ("url", url),
    ("web_token", web_token),
    ("xml", xml),
    ("xz", xz),
    ("zstd", zstd),
];
