//! Checks with the metrics of a node that Cassandra applies a write as one mutation.

use std::cell::Cell;

use crate::{batches::assert_each_is_one_mutation, home::Home, http::post, test_stores::nodetool};

/// The write of a new revision with a render stores rows of five kinds: the revision, its index entry by time, the
/// render, its index entry by tid, and the properties. In one mutation, readers see either all of them or none.
#[test]
fn new_revision_is_one_mutation() {
    const WRITES: u64 = 40;
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    let rev = Cell::new(1);
    assert_each_is_one_mutation(WRITES, nodetool, || {
        for _ in 0..WRITES {
            let form = format!("_rev={}&html=the+light&wikitext=was+lit&data-mw=%7B%7D", rev.get());
            let written = post(&address, "/v1/wiki/page/Night?rev/", &form);
            assert!(written.starts_with("HTTP/1.1 201"), "{written}");
            rev.set(rev.get() + 1);
        }
    });
    server.stop().ends_with(0);
}
