//! The memory of an import while its body arrives.
//!
//! An import holds the revisions between its parser and the store. While it waits for its client, it stores what it has.
//! So an import whose client is slow gives back its memory, except that of the revisions which the parser collects. From
//! then on, its claim grows with the bytes that arrive.
//!
//! An import takes hours, so it is not refused halfway, and it does not wait for memory either. If its claim cannot grow,
//! it pauses, as if its client was slow.

use std::{pin::pin, time::Duration};

use crate::forms::{BodyError, RequestBody};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::{IMPORT_BYTES, MAX_IMPORT_COPIES, Room};

/// The claim of an import whose client is slow. The parser collects at most 1 MiB of revisions before it passes them on.
pub(super) const SLOW_IMPORT_BYTES: usize = MAX_IMPORT_COPIES << 20;

/// How many bytes of revisions are expected of each byte that arrives, since it may be compressed. The limit of all
/// revisions does not depend on this.
const EXPANSION: usize = 32;

/// How long an import waits for [`PROMPT_BYTES`] before it gives back memory.
const PATIENCE: Duration = Duration::from_millis(100);

/// A client that sends so much within [`PATIENCE`] is not slow.
const PROMPT_BYTES: usize = 64 << 10;

/// The memory of an import, for those who receive its body.
#[derive(Debug)]
pub(crate) struct ImportRoom {
    room: Room,
    /// The number of bytes since the client was slow.
    arrived: usize,
    /// How long the import may wait for the rest of [`PROMPT_BYTES`], and the number of bytes that have arrived of it.
    patience: Duration,
    prompt: usize,
}

impl ImportRoom {
    pub(super) const fn new(room: Room) -> Self {
        Self { room, arrived: 0, patience: PATIENCE, prompt: 0 }
    }

    /// Returns the next piece of the body of the import.
    pub(crate) async fn next(&mut self, body: &mut RequestBody) -> Result<Option<Bytes>, BodyError> {
        let begun = Instant::now();
        let mut next = pin!(body.next());
        let piece = match timeout(self.patience, next.as_mut()).await {
            Ok(piece) => {
                self.patience = self.patience.saturating_sub(begun.elapsed());
                piece
            }
            Err(_elapsed) => {
                self.give_back();
                next.await
            }
        }?;
        if let Some(piece) = &piece {
            self.take_for(piece.len()).await;
        }
        Ok(piece)
    }

    /// Extends the claim for bytes that have arrived.
    async fn take_for(&mut self, bytes: usize) {
        self.arrived = self.arrived.saturating_add(bytes);
        self.prompt += bytes;
        if self.prompt >= PROMPT_BYTES {
            (self.patience, self.prompt) = (PATIENCE, 0);
        }
        let wanted = self.arrived.saturating_mul(MAX_IMPORT_COPIES * EXPANSION);
        if !self.room.set_base(wanted.clamp(SLOW_IMPORT_BYTES, IMPORT_BYTES)) {
            sleep(PATIENCE).await;
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        self.room.set_base(SLOW_IMPORT_BYTES);
        (self.arrived, self.patience, self.prompt) = (0, PATIENCE, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::forms::BodyLimits;
    use axum::body::Body;
    use futures::{StreamExt as _, stream};
    use prometheus_client::{metrics::counter::Counter, registry::Registry};

    use super::{super::Staging, *};
    use crate::Settings;

    fn staging(bytes: usize) -> Staging {
        let settings = Settings { staging_bytes: bytes as u64, ..Settings::default() };
        Staging::new(&settings, &mut Registry::default())
    }

    /// A body of pieces of these sizes, each of which comes after a pause.
    fn body(pieces: impl IntoIterator<Item = (u64, usize), IntoIter: Send + 'static>) -> RequestBody {
        let pieces = stream::iter(pieces).then(|(milliseconds, size)| async move {
            sleep(Duration::from_millis(milliseconds)).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; size]))
        });
        let hour = Duration::from_secs(3600);
        let limits = BodyLimits { bytes: u64::MAX, idle: hour, total: hour, rate: 0 };
        RequestBody::new(Body::from_stream(pieces), limits, Counter::default()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn claim_grows_with_the_bytes_and_is_given_back_when_the_client_is_slow() {
        let staging = staging(2 * IMPORT_BYTES);
        let claimed = || staging.metrics.claimed.get() as usize;
        let claim = staging.claim_import().await.unwrap();
        assert_eq!(claimed(), SLOW_IMPORT_BYTES);
        let mut room = ImportRoom::new(claim.room());
        let fast = [(0, 100 << 10), (50, 100 << 10), (50, 100 << 10)];
        // Single bytes do not make a client prompt.
        let drops = (0..10).map(|_| (20, 1));
        let mut body = body(fast.into_iter().chain(drops).chain([(0, 100 << 10), (3000, 1)]));
        let mut sizes = Vec::new();
        while room.next(&mut body).await.unwrap().is_some() {
            sizes.push(claimed());
        }
        assert_eq!(sizes[..3], [9600 << 10, 19200 << 10, IMPORT_BYTES]);
        assert_eq!((sizes[3], sizes[12]), (IMPORT_BYTES, SLOW_IMPORT_BYTES), "{sizes:?}");
        assert!(sizes[13] >= 9600 << 10, "{sizes:?}");
        assert_eq!(sizes[14], SLOW_IMPORT_BYTES);
        drop((room, claim));
        assert_eq!(claimed(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn import_without_room_pauses_and_continues() {
        let staging = staging(IMPORT_BYTES);
        let claim = staging.claim_import().await.unwrap();
        let others = staging.claim_batch(IMPORT_BYTES / 2).await.unwrap();
        let mut room = ImportRoom::new(claim.room());
        let mut body = body((0..10).map(|_| (0, 200 << 10)));
        let begun = Instant::now();
        for _ in 0..5 {
            room.next(&mut body).await.unwrap();
            assert_eq!(staging.metrics.claimed.get() as usize, IMPORT_BYTES / 2 + SLOW_IMPORT_BYTES);
        }
        assert_eq!(begun.elapsed(), 5 * PATIENCE);
        drop(others);
        room.next(&mut body).await.unwrap();
        assert!(staging.metrics.claimed.get() as usize > IMPORT_BYTES / 2);
        assert_eq!(begun.elapsed(), 5 * PATIENCE);
    }
}
