//! Makes the buckets that the configuration declares, at the start of a server.

use std::time::Duration;

use crate::configuration::{DeclaredBucket, Settings};
use rashomon_entries::{Error, KeyValueStore};

use crate::{errors::CommandError, registry::Registry, store::Store};

/// The time between two attempts to make the buckets while a store does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The declared buckets of all stores of a server.
pub(crate) struct DeclaredBuckets {
    stores: Vec<(KeyValueStore, Vec<DeclaredBucket>)>,
    /// Whether missing buckets are made.
    makes_buckets: bool,
}

impl DeclaredBuckets {
    /// The declared buckets of the configuration.
    pub(crate) fn of(settings: &Settings, store: &Store, registry: Option<&Registry>) -> Self {
        let mut stores = vec![(store.key_value().clone(), settings.declared_buckets().of_main_store())];
        let others = registry.into_iter().flat_map(Registry::stores_with_settings);
        stores.extend(others.map(|(of_store, store)| {
            (store.key_value().clone(), settings.declared_buckets().of_store(of_store))
        }));
        Self { stores, makes_buckets: !settings.is_read_only() }
    }

    /// Makes the missing buckets, unless the server is read-only. Fails if a bucket is stored with another definition.
    /// Returns whether all stores have answered.
    pub(crate) async fn make(&self) -> Result<bool, CommandError> {
        match self.try_make().await {
            Ok(()) => Ok(true),
            Err(error) if error.is_unavailable() => {
                tracing::warn!(
                    %error,
                    "the buckets of the configuration cannot be made, since the store does not answer; trying again"
                );
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Tries to make the missing buckets until the stores answer. Returns an error that waiting cannot solve, such as a
    /// bucket that is stored with another definition. Otherwise never returns.
    pub(crate) async fn keep_trying(&self) -> CommandError {
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            match self.try_make().await {
                Ok(()) => return std::future::pending().await,
                Err(error) if error.is_unavailable() => {}
                Err(error) => return error,
            }
        }
    }

    async fn try_make(&self) -> Result<(), CommandError> {
        for (store, buckets) in &self.stores {
            for bucket in buckets {
                make_bucket(store, bucket, self.makes_buckets).await?;
            }
        }
        Ok(())
    }
}

async fn make_bucket(
    store: &KeyValueStore,
    declared: &DeclaredBucket,
    makes_buckets: bool,
) -> Result<(), CommandError> {
    let DeclaredBucket { domain, bucket: name, definition } = declared;
    if !makes_buckets && store.bucket(domain, name).await.map_err(CommandError::of_bucket)?.is_none() {
        tracing::warn!(%domain, bucket = %name, "the bucket is missing, and is not made since the server is read-only");
        return Ok(());
    }
    match store.ensure_bucket(domain, name, definition.clone()).await {
        Ok(made) if made.is_new => {
            tracing::info!(%domain, bucket = %name, %definition, "the bucket of the configuration was made");
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(Error::OtherDefinition { stored }) => {
            let stored = stored.definition;
            let replace = if stored.bucket_type == definition.bucket_type {
                format!(
                    "replace the stored definition with `rashomon bucket create {domain}/{name} --type {} --replace` and a \
                     flag for each other setting of the bucket, ",
                    definition.bucket_type
                )
            } else {
                String::new()
            };
            Err(CommandError::Usage(format!(
                "the bucket {name} of {domain} is stored with another definition than the configuration has\n  \
                 stored:        {stored}\n  configuration: {definition}\nChange [domains.{domain}.buckets.{name}], \
                 {replace}or delete the bucket and its entries with `rashomon bucket delete {domain}/{name} --yes`"
            )))
        }
        Err(error) => Err(CommandError::of_bucket(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::configuration::{RawSettings, StoreUrl};
    use rashomon_clock::{Clock, SystemClock};
    use tempfile::TempDir;

    use super::*;
    use crate::store::IfMissing;

    struct Server {
        directory: TempDir,
        store: Store,
    }

    impl Server {
        async fn open() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let settings = settings(&directory, "");
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let store = Store::open(&settings, clock, IfMissing::Create).await.unwrap();
            Self { directory, store }
        }

        async fn start(&self, file: &str) -> Result<bool, String> {
            let settings = settings(&self.directory, file);
            let made = DeclaredBuckets::of(&settings, &self.store, None).make().await;
            made.map_err(|error| {
                assert_eq!(error.exit(), crate::exit::Exit::Usage);
                error.to_string()
            })
        }

        async fn definition(&self, name: &str) -> Option<String> {
            let (domain, name) = ("enwiki".parse().unwrap(), name.parse().unwrap());
            let bucket = self.store.key_value().bucket(&domain, &name).await.unwrap();
            bucket.map(|bucket| bucket.definition.to_string())
        }
    }

    fn settings(directory: &TempDir, file: &str) -> Settings {
        let path = directory.path().join("rashomon.toml");
        std::fs::write(&path, file).unwrap();
        let store = Some(StoreUrl::Sqlite(directory.path().join("data")));
        Settings::load(RawSettings { store, ..RawSettings::default() }, Some(&path)).unwrap()
    }

    #[tokio::test]
    async fn missing_buckets_are_made_and_stored_ones_are_compared() {
        let server = Server::open().await;
        let thumbs = "[domains.enwiki.buckets.thumbs]\ntype = 'blob'\nttl = '1d'\n";
        let stored = r#"{"type":"blob","public":false,"ttl":86400}"#;
        for _ in 0..2 {
            assert_eq!(server.start(thumbs).await, Ok(true));
            assert_eq!(server.definition("thumbs").await.as_deref(), Some(stored));
        }
        // A default that is written out is the same definition.
        let with_default = format!("{thumbs}public = false\ncontent_type = 'application/octet-stream'\n");
        assert_eq!(server.start(&with_default).await, Ok(true));
        let other =
            server.start("[domains.enwiki.buckets.thumbs]\ntype = 'blob'\nttl = '2d'\n").await.unwrap_err();
        for part in
            [stored, r#""ttl":172800"#, "bucket create enwiki/thumbs --type blob --replace", "bucket delete"]
        {
            assert!(other.contains(part), "{other}");
        }
        let other = server.start("[domains.enwiki.buckets.thumbs]\ntype = 'counter'\n").await.unwrap_err();
        assert!(other.contains(stored) && !other.contains("--replace"), "{other}");
        assert_eq!(server.definition("thumbs").await.as_deref(), Some(stored));
    }

    #[tokio::test]
    async fn read_only_server_makes_no_bucket() {
        let server = Server::open().await;
        let thumbs = "[domains.enwiki.buckets.thumbs]\ntype = 'blob'\n";
        assert_eq!(server.start(&format!("read_only = true\n{thumbs}")).await, Ok(true));
        assert_eq!(server.definition("thumbs").await, None);
    }
}
