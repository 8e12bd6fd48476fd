//! What a write is to Cassandra, by its own account.

use std::cell::Cell;

use crate::{batches::assert_each_is_one_mutation, home::Home, http::post, kept::nodetool};

/// A new revision with a render: the revision, its place in time, the render, its place among the tids, and its
/// properties. Readers see all of it or nothing.
#[test]
fn a_revision_with_its_render_its_properties_and_its_indexes_is_one_mutation() {
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
