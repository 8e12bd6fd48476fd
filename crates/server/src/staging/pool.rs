//! Units of memory that requests share.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};

/// A number of units. Who waits for units waits in turn and holds none meanwhile, so that those who hold some can take
/// more without waiting, as long as any are free.
#[derive(Debug)]
pub(super) struct Pool {
    units: Arc<Semaphore>,
    all: u32,
    /// The turn to wait for units.
    turn: Mutex<()>,
    released: Notify,
}

impl Pool {
    pub(super) fn new(all: u32) -> Arc<Self> {
        Arc::new(Self {
            units: Arc::new(Semaphore::new(all as usize)),
            all,
            turn: Mutex::new(()),
            released: Notify::new(),
        })
    }

    /// Takes units when they are free. A request for more than all units takes all.
    pub(super) async fn acquire(self: &Arc<Self>, units: u32) -> Units {
        let units = units.min(self.all);
        let _turn = self.turn.lock().await;
        loop {
            if let Some(permit) = self.try_acquire(units) {
                return Units { permit: Some(permit), pool: Arc::clone(self) };
            }
            self.released.notified().await;
        }
    }

    fn try_acquire(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.units).try_acquire_many_owned(units).ok()
    }

    /// The number of units.
    pub(super) const fn all(&self) -> u32 {
        self.all
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.units.available_permits()
    }
}

/// Units of a pool, which are released when this is dropped.
#[derive(Debug)]
pub(super) struct Units {
    /// `None` only while this is dropped.
    permit: Option<OwnedSemaphorePermit>,
    pool: Arc<Pool>,
}

impl Units {
    /// No units of a pool.
    pub(super) const fn none(pool: Arc<Pool>) -> Self {
        Self { permit: None, pool }
    }

    pub(super) fn count(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Takes more units, without waiting. Returns `false`, and changes nothing, if too few are free.
    pub(super) fn grow(&mut self, more: u32) -> bool {
        if more == 0 {
            return true;
        }
        let Some(more) = self.pool.try_acquire(more) else { return false };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        true
    }

    /// Releases some of the units.
    pub(super) fn release(&mut self, fewer: usize) {
        drop(self.permit.as_mut().and_then(|permit| permit.split(fewer)));
        self.pool.released.notify_one();
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.pool.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn holder_grows_while_others_wait_in_turn() {
        let pool = Pool::new(10);
        let mut held = pool.acquire(4).await;
        let wait = |units| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.acquire(units).await.count() })
        };
        let (all, small) = (wait(11), wait(1));
        tokio::task::yield_now().await;
        assert!(held.grow(5) && !held.grow(2) && held.count() == 9);
        held.release(3);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert!(!all.is_finished() && !small.is_finished(), "the second one is behind the first");
        drop(held);
        assert_eq!((all.await.unwrap(), small.await.unwrap()), (10, 1));
        assert_eq!(pool.free(), 10);
    }
}
