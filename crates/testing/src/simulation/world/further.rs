//! The further bucket of pages of a world.

use std::time::Duration;

use rashomon_entries::{BucketType, Definition, Error as KeyValueError};
use rashomon_pages::{BucketName, Error, Page, schemas};

use super::{World, domain, page, tables};

fn name() -> BucketName {
    BucketName::new("docs").expect("a name")
}

impl World {
    /// Makes the further bucket, if it is missing. From now on, the world has the pages of this bucket.
    pub(super) async fn make_further(&mut self, process: usize) -> Result<(), KeyValueError> {
        let definition = Definition::of(BucketType::Revisioned);
        let made = self.processes[process].key_value().ensure_bucket(&domain(), &name(), definition).await?;
        let bucket = made.bucket.pages().ok_or(KeyValueError::NoBucket)?;
        let before = self.pages.split_off(self.setup.pages);
        self.deleted_pages.extend(before);
        self.pages.extend((0..self.setup.pages).map(|number| page(number, &bucket)));
        self.further_made += 1;
        Ok(())
    }

    /// Deletes the further bucket, and makes it again. If a disturbance interrupts the process, the process
    /// tries again undisturbed.
    pub(crate) async fn recreate_further(&mut self, process: usize) -> Result<(), KeyValueError> {
        if self.try_to_recreate_further(process).await.is_ok() {
            return Ok(());
        }
        self.processes[process].clear_disturbances();
        self.try_to_recreate_further(process).await
    }

    async fn try_to_recreate_further(&mut self, process: usize) -> Result<(), KeyValueError> {
        self.processes[process].key_value().delete_bucket(&domain(), &name()).await?;
        self.make_further(process).await
    }

    /// Deletes the pages of deleted buckets, and then the rows of these buckets.
    pub(crate) async fn delete_pages(&self, process: usize, age: Duration) -> Result<(), Error> {
        let process = &self.processes[process];
        rashomon_pages::operations::delete_pages(&process.buckets, &process.key_value(), age).await?;
        process.key_value().collect(age).await?;
        Ok(())
    }

    /// The tables that have rows of pages in deleted buckets.
    pub(crate) async fn tables_of_deleted_pages(
        &self,
    ) -> Result<Vec<(&'static str, &Page)>, rashomon_tables::Error> {
        self.store_clock.show(self.latest_clock());
        let mut left = Vec::new();
        for page in &self.deleted_pages {
            for table in schemas::of_pages() {
                if !tables::rows(&self.store, table, page).await?.is_empty() {
                    left.push((table.name(), page));
                }
            }
        }
        Ok(left)
    }
}
