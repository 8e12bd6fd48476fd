//! The memory limit of decompression, for every format.

use std::io::{self, Read};

/// zstd's message for a window that exceeds the limit of its decoder. The crate `zstd` has no error code for it.
const ZSTD_WINDOW_TOO_LARGE: &str = "Frame requires too much memory for decoding";

/// The memory that zstd uses in addition to a window, rounded up.
const ZSTD_MEMORY: u64 = 1 << 20;

/// Fails if decompressing needs more memory than `limit`, in bytes.
pub(super) fn check(format: &str, needed: u64, limit: u64) -> io::Result<()> {
    if needed <= limit {
        return Ok(());
    }
    Err(too_large(&format!("decompressing this {format} data takes {needed} bytes of memory"), limit))
}

/// Returns the binary logarithm of the largest zstd window that fits into the limit.
pub(super) fn zstd_window_log(limit: u64) -> u32 {
    // The range that the library accepts.
    limit.saturating_sub(ZSTD_MEMORY).checked_ilog2().unwrap_or_default().clamp(10, 31)
}

fn too_large(what: &str, limit: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!(
            "{what}, and at most {limit} bytes are allowed: decompress it first, or compress it again with a \
             smaller dictionary, window or model"
        ),
    )
}

/// A decoder whose errors about memory name the limit, and say what to do.
pub(super) struct MemoryErrors<R> {
    decoder: R,
    format: &'static str,
    limit: u64,
}

impl<R> MemoryErrors<R> {
    pub(super) const fn new(decoder: R, format: &'static str, limit: u64) -> Self {
        Self { decoder, format, limit }
    }
}

impl<R: Read> Read for MemoryErrors<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| {
            if !is_about_memory(&error) {
                return error;
            }
            too_large(&format!("decompressing this {} data takes too much memory", self.format), self.limit)
        })
    }
}

fn is_about_memory(error: &io::Error) -> bool {
    use liblzma::stream::Error::{Mem, MemLimit};
    let Some(inner) = error.get_ref() else { return false };
    match inner.downcast_ref::<liblzma::stream::Error>() {
        Some(error) => matches!(error, Mem | MemLimit),
        None => error.kind() == io::ErrorKind::Other && inner.to_string() == ZSTD_WINDOW_TOO_LARGE,
    }
}
