//! The text of an error of a connection.

use std::error::Error;

use rashomon_records::shorten;

/// The maximum number of bytes that are shown of an error of another program.
const MAX_REASON_BYTES: usize = 1024;

/// The last cause of an error, which says what happened.
#[must_use]
pub fn last_cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    shorten(last, MAX_REASON_BYTES)
}
