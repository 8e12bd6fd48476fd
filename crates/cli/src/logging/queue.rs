//! Limits the bytes of the log lines that wait until standard error is read.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

/// The maximum number of waiting lines.
const MAX_LINES: usize = 10_000;

/// The maximum number of bytes of waiting lines.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// A shorter line counts as this many bytes, so that at most [`MAX_LINES`] lines wait.
const MIN_LINE_BYTES: usize = MAX_BYTES.div_ceil(MAX_LINES);

/// Starts a thread that writes lines to `inner`. Lines that do not fit into the queue are dropped, so that no
/// client of the server waits until the log is read.
pub(super) fn start(inner: impl Write + Send + 'static) -> (LineQueue, WorkerGuard) {
    let waiting = Arc::new(AtomicUsize::new(0));
    let (lines, guard) = NonBlockingBuilder::default()
        // There are more places than lines, since the message that ends the thread needs a place too.
        .buffered_lines_limit(MAX_LINES + 2)
        .thread_name("log")
        .finish(Written { inner, waiting: Arc::clone(&waiting) });
    (LineQueue { lines, waiting }, guard)
}

const fn cost(line: &[u8]) -> usize {
    if line.len() > MIN_LINE_BYTES { line.len() } else { MIN_LINE_BYTES }
}

/// The input end of the queue. Each call of `write` is a line.
#[derive(Debug, Clone)]
pub(super) struct LineQueue {
    lines: NonBlocking,
    /// The waiting bytes, as [`cost`] counts them.
    waiting: Arc<AtomicUsize>,
}

impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let add = |waiting: usize| waiting.checked_add(cost(line)).filter(|waiting| *waiting <= MAX_BYTES);
        if self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok() {
            self.lines.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The output end of the queue. Each call of `write` is a line.
#[derive(Debug)]
struct Written<W> {
    inner: W,
    waiting: Arc<AtomicUsize>,
}

impl<W: Write> Write for Written<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.inner.write_all(line);
        self.waiting.fetch_sub(cost(line), Ordering::Relaxed);
        written.map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Mutex, PoisonError,
            mpsc::{Receiver, Sender, channel},
        },
        time::Duration,
    };

    use rashomon_clock::{Clock as _, SystemClock};

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
        let (queue, guard) = start(Stalled { permits, written: Arc::clone(&written) });
        (queue, guard, sender, written)
    }

    fn wait_until_empty(queue: &LineQueue) {
        let clock = SystemClock::new();
        let begun = clock.monotonic();
        while queue.waiting.load(Ordering::Relaxed) > 0 {
            assert!(clock.monotonic() - begun < Duration::from_secs(60), "lines wait that nobody writes");
            std::thread::yield_now();
        }
    }

    /// Lets all waiting lines be written, and returns their sizes.
    fn read_all(
        (mut queue, guard, permits, written): (LineQueue, WorkerGuard, Sender<()>, Arc<Mutex<Vec<usize>>>),
    ) -> Vec<usize> {
        for _ in 0..2 * MAX_LINES {
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
        for _ in 0..MAX_LINES {
            stalled.0.write_all(&[b'x'; 16 << 10]).unwrap();
        }
        assert!(stalled.0.waiting.load(Ordering::Relaxed) <= MAX_BYTES);
        assert_eq!(read_all(stalled), vec![16 << 10; MAX_BYTES / (16 << 10)]);
    }

    #[test]
    fn waiting_lines_are_bounded_in_number() {
        let mut stalled = stalled();
        for _ in 0..2 * MAX_LINES {
            stalled.0.write_all(b"short").unwrap();
        }
        let lines = read_all(stalled);
        assert!((MAX_LINES - 10..=MAX_LINES).contains(&lines.len()), "{} lines", lines.len());
    }
}
