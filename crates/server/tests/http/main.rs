//! Tests of the API through its real router, over the store that the environment names, or else in memory.

// Clippy lets tests unwrap, but not their helpers.
#![allow(clippy::unwrap_used)]
// The tests of pages run with two buckets.
#![allow(clippy::duplicate_mod)]

mod access;
mod auditing;
mod bad_input;
mod batches;
mod browsers;
mod buckets;
mod client_urls;
mod conditions;
mod counters;
mod cures;
mod damage;
mod docs;
mod documents;
mod entries;
mod excerpts;
mod faults;
mod further_bucket;
mod gzip;
mod html;
mod ignored_headers;
mod importing;
mod large_bodies;
mod listings;
mod log;
mod openapi;
mod operators;
mod overload;
mod page_buckets;
mod pages;
mod paging;
mod peer_cases;
mod random;
mod random_entries;
mod reading;
mod redirects;
mod refusals;
mod rewriting;
mod serving;
mod slow_uploads;
mod socket;
mod staging;
mod steering_headers;
mod time_travel;
mod tls;
mod tls_files;
mod versions;
mod wiki;
mod world;
mod writing;
