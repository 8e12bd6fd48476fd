//! A queue of lines that a thread writes. The number and the bytes of waiting lines are limited.

use std::{
    io::{self, Write},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// The maximum number of waiting lines.
const MAX_WAITING_LINES: usize = 10_000;

/// The maximum number of bytes of waiting lines.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// A shorter line counts as this many bytes, so that at most [`MAX_WAITING_LINES`] lines wait.
const MIN_LINE_BYTES: usize = MAX_WAITING_BYTES.div_ceil(MAX_WAITING_LINES);

/// The bytes by which a line counts towards [`MAX_WAITING_BYTES`].
const fn cost(line: &[u8]) -> usize {
    if line.len() > MIN_LINE_BYTES { line.len() } else { MIN_LINE_BYTES }
}

/// The input end of a queue of lines. A thread writes the lines. At most 10,000 lines and 16 MiB wait. Clones share
/// the queue.
#[derive(Debug, Clone)]
pub struct LineQueue {
    lines: NonBlocking,
    waiting: Arc<WaitingLines>,
}

/// The waiting lines.
#[derive(Debug, Default)]
struct WaitingLines {
    /// The bytes of the waiting lines, as [`cost`] counts them.
    bytes: AtomicUsize,
    /// Guards no data. A thread that waits for [`Self::emptied`] holds it while it reads [`Self::bytes`].
    lock: Mutex<()>,
    /// Notified when no line waits any more.
    emptied: Condvar,
}

impl LineQueue {
    /// Starts a thread that writes the lines. Each call of `writer`'s `write` is a line. `flush` is called when
    /// the queue has become empty. Dropping the guard writes the last lines, for at most a second.
    pub fn start(thread_name: &str, writer: impl Write + Send + 'static) -> (Self, WorkerGuard) {
        let waiting = Arc::new(WaitingLines::default());
        let (lines, guard) = NonBlockingBuilder::default()
            // There are more places than lines, since the message that ends the thread needs a place too, and
            // so does the empty line of `wake`.
            .buffered_lines_limit(MAX_WAITING_LINES + 4)
            .thread_name(thread_name)
            .finish(CountingWriter { inner: writer, waiting: Arc::clone(&waiting) });
        (Self { lines, waiting }, guard)
    }

    /// Adds a line, if there is room for it. Never waits. Returns whether the line was added.
    pub fn push(&self, line: &[u8]) -> bool {
        let add =
            |waiting: usize| waiting.checked_add(cost(line)).filter(|waiting| *waiting <= MAX_WAITING_BYTES);
        self.waiting.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
            && self.lines.clone().write_all(line).is_ok()
    }

    /// Makes the thread call `flush` of its writer soon, even if no line waits.
    pub(crate) fn wake(&self) {
        // An empty line reaches the thread, but not the writer. If there is no place for it, lines wait, and a
        // flush follows them.
        let _ = self.lines.clone().write_all(b"");
    }

    /// Waits until the queue is empty, up to a time limit. Returns whether the queue is empty.
    pub(crate) fn wait_until_empty(&self, limit: Duration) -> bool {
        let lock = self.waiting.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let has_lines = |(): &mut ()| self.waiting.bytes.load(Ordering::Acquire) > 0;
        let waited = self.waiting.emptied.wait_timeout_while(lock, limit, has_lines);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Write for LineQueue {
    /// Adds a line. A line for which there is no room is dropped.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output end of the queue. A line that was passed to the inner writer waits no more, even if the writer failed.
/// Each call of `write` is a line.
#[derive(Debug)]
struct CountingWriter<W> {
    inner: W,
    waiting: Arc<WaitingLines>,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.inner.write_all(line);
        if self.waiting.bytes.fetch_sub(cost(line), Ordering::Release) == cost(line) {
            // With the lock, a thread cannot begin to wait between the subtraction and the notification.
            let _lock = self.waiting.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.waiting.emptied.notify_all();
        }
        written.map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A writer that writes a line for each permit, and records the size of each line.
    struct Stalled {
        permits: Receiver<()>,
        written: Arc<Mutex<Vec<usize>>>,
    }

    impl Write for Stalled {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if self.permits.recv().is_err() {
                return Err(io::Error::other("the test is over"));
            }
            self.written.lock().unwrap_or_else(PoisonError::into_inner).push(line.len());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stalled() -> (LineQueue, WorkerGuard, Sender<()>, Arc<Mutex<Vec<usize>>>) {
        let (sender, permits) = channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (queue, guard) = LineQueue::start("log", Stalled { permits, written: Arc::clone(&written) });
        (queue, guard, sender, written)
    }

    fn wait_until_empty(queue: &LineQueue) {
        assert!(queue.wait_until_empty(Duration::from_secs(60)), "lines wait that nobody writes");
    }

    /// Lets all waiting lines be written, and returns their sizes.
    fn read_all(
        (mut queue, guard, permits, written): (LineQueue, WorkerGuard, Sender<()>, Arc<Mutex<Vec<usize>>>),
    ) -> Vec<usize> {
        for _ in 0..2 * MAX_WAITING_LINES {
            permits.send(()).unwrap();
        }
        wait_until_empty(&queue);
        // There is room in the queue again.
        queue.write_all(b"last").unwrap();
        wait_until_empty(&queue);
        drop(guard);
        let written = written.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(written.last(), Some(&4));
        written[..written.len() - 1].to_vec()
    }

    #[test]
    fn waiting_lines_are_bounded_in_bytes() {
        let mut stalled = stalled();
        for _ in 0..MAX_WAITING_LINES {
            stalled.0.write_all(&[b'x'; 16 << 10]).unwrap();
        }
        assert!(stalled.0.waiting.bytes.load(Ordering::Relaxed) <= MAX_WAITING_BYTES);
        assert_eq!(read_all(stalled), vec![16 << 10; MAX_WAITING_BYTES / (16 << 10)]);
    }

    #[test]
    fn waiting_lines_are_bounded_in_number() {
        let mut stalled = stalled();
        for _ in 0..2 * MAX_WAITING_LINES {
            stalled.0.write_all(b"short").unwrap();
        }
        let lines = read_all(stalled);
        assert!((MAX_WAITING_LINES - 10..=MAX_WAITING_LINES).contains(&lines.len()), "{} lines", lines.len());
    }
}
