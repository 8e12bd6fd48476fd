//! Turns: a thread with much work lets other threads of the same core run from time to time.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

/// The time for which a thread works before it lets other threads run.
const TURN: Duration = Duration::from_micros(100);

thread_local! {
    /// The time at which this thread last let other threads run.
    static TURN_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets other threads run on the core of this thread, if this thread has not done so for 0.1 milliseconds. Threads with
/// much work call this after each small piece of work.
///
/// The kernel also takes the core from a thread that has used up its time slice, but often only at its next timer
/// interrupt, which is up to four milliseconds away. A thread with a short and urgent task would wait for that long.
#[expect(clippy::disallowed_methods, reason = "the turns of a thread are real time, in tests, too")]
pub fn give_way() {
    let now = Instant::now();
    if TURN_BEGAN.get().is_none_or(|began| now.duration_since(began) >= TURN) {
        thread::yield_now();
        TURN_BEGAN.set(Some(Instant::now()));
    }
}
