//! Stores tokens and their last uses.

use std::{num::NonZeroUsize, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, future::try_join, stream};
use rashomon_clock::{Clock, Timestamp};
use rashomon_records::{
    Error, Listing, Result,
    rows::{Json, TypedRow as _},
    schemas::{TOKEN_USES, TOKENS},
    typed_row,
};
use rashomon_tables::{
    Batch, ClusteringRange, Error as StoreError, Key, Row, RowStream, Scan, Schema, TableStore, Value,
};

use crate::access::{Grant, NewToken, TokenId, TokenInfo, TokenText, token::TokenHash};

/// The only partition of the tables of tokens.
const PARTITION: &str = "tokens";

/// The number of tokens that are looked up at the same time when their last uses are stored.
const CONCURRENT_LOOKUPS: usize = 16;

/// The maximum number of tokens of a list.
pub const MAX_LISTED: usize = 500;

typed_row! {
    /// A token.
    struct TokenRow in TOKENS {
        key { id: String }
        values {
            hash: Bytes,
            grant: Json<Grant>,
            created_at: Timestamp,
            valid_until: Option<Timestamp>,
            note: Option<String>,
        }
    }
}

typed_row! {
    /// The last use of a token.
    struct UseRow in TOKEN_USES {
        key { id: String }
        values { used_at: Timestamp }
    }
}

/// The tokens of a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TokenStore {
    tables: Arc<dyn TableStore>,
    clock: Arc<dyn Clock>,
}

/// The properties of a stored token that decide about a request.
#[derive(Debug, Clone)]
pub(crate) struct StoredToken {
    pub(crate) hash: TokenHash,
    pub(crate) grant: Grant,
    pub(crate) expires_at: Option<Timestamp>,
}

impl TokenStore {
    /// The tokens of a store whose tables exist.
    #[must_use]
    pub fn new(tables: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Self {
        Self { tables, clock }
    }

    /// Whether only this process writes to the store, so that no other process can revoke a token.
    pub(crate) fn has_one_process(&self) -> bool {
        self.tables.partition_versions().is_some()
    }

    /// Makes a token, and stores its hash. Nobody can learn the token later, so the caller has to show it.
    pub async fn create(&self, new: NewToken) -> Result<TokenText> {
        let now = self.clock.now();
        let token = TokenText::generate(now).map_err(no_random_numbers)?;
        let row = TokenRow {
            id: token.id().as_str().to_owned(),
            hash: Bytes::copy_from_slice(&token.hash().0),
            grant: Json(new.grant),
            created_at: now,
            valid_until: new.expires_at,
            note: new.note.filter(|note| !note.is_empty()),
        };
        let mut batch = partition_batch();
        row.put(&mut batch, now);
        self.tables.write(Vec::new(), batch).await?;
        Ok(token)
    }

    /// Lists the tokens after `after`, the oldest first: at most `limit`, and at most [`MAX_LISTED`].
    pub async fn list(&self, after: Option<&TokenId>, limit: usize) -> Result<Listing<TokenInfo, TokenId>> {
        let limit = limit.clamp(1, MAX_LISTED);
        let range = match after {
            Some(id) => ClusteringRange::all().above(id.as_str()),
            None => ClusteringRange::all(),
        };
        let rows = NonZeroUsize::MIN.saturating_add(limit);
        let mut items = Vec::new();
        let scan = Scan::new(vec![PARTITION.into()], rows).range(range);
        let mut tokens = RowStream::new(&*self.tables, &TOKENS, scan);
        while items.len() <= limit
            && let Some(row) = tokens.next().await?
        {
            items.push(TokenRow::from_row(&row)?);
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let mut uses = self.uses(&items).await?;
        let info = |row: TokenRow| -> Result<TokenInfo> {
            Ok(TokenInfo {
                used_at: uses.remove(&row.id),
                id: row.id.parse().map_err(|_| unreadable("id"))?,
                grant: row.grant.0,
                created_at: row.created_at,
                expires_at: row.valid_until,
                note: row.note,
            })
        };
        let items = items.into_iter().map(info).collect::<Result<Vec<_>>>()?;
        let next = items.last().filter(|_| has_more).map(|last| last.id.clone());
        Ok(Listing { items, next })
    }

    /// The last uses of the listed tokens.
    async fn uses(&self, rows: &[TokenRow]) -> Result<std::collections::HashMap<String, Timestamp>> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(Default::default()) };
        let range = ClusteringRange::all().at_least(first.id.as_str()).at_most(last.id.as_str());
        let scan =
            Scan::new(vec![PARTITION.into()], NonZeroUsize::MIN.saturating_add(MAX_LISTED)).range(range);
        let rows = RowStream::new(&*self.tables, &TOKEN_USES, scan).collect().await?;
        rows.iter().map(|row| UseRow::from_row(row).map(|row| (row.id, row.used_at))).collect()
    }

    /// Revokes a token. Returns whether the token was stored. A revoked token cannot be restored.
    pub async fn revoke(&self, id: &TokenId) -> Result<bool> {
        let (token, last_use) = try_join(self.row(&TOKENS, id), self.row(&TOKEN_USES, id)).await?;
        let now = self.clock.now();
        // The server that wrote a row may have had a later clock than this one.
        let after = |row: &Row| now.max(row.written_at.just_after());
        let mut batch = partition_batch();
        if let Some(token) = &token {
            batch.delete(&TOKENS, vec![id.as_str().into()], after(token));
        }
        if token.is_some() || last_use.is_some() {
            // The use is deleted even if none was found: another server may store it at this moment.
            batch.delete(&TOKEN_USES, vec![id.as_str().into()], last_use.as_ref().map_or(now, after));
            self.tables.write(Vec::new(), batch).await?;
        }
        Ok(token.is_some())
    }

    /// Reads a token.
    pub(crate) async fn find(&self, id: &TokenId) -> Result<Option<StoredToken>> {
        let Some(row) = self.row(&TOKENS, id).await? else { return Ok(None) };
        let TokenRow { hash, grant, valid_until, .. } = TokenRow::from_row(&row)?;
        let hash = TokenHash(hash.as_ref().try_into().map_err(|_| unreadable("hash"))?);
        Ok(Some(StoredToken { hash, grant: grant.0, expires_at: valid_until }))
    }

    async fn row(&self, table: &'static Schema, id: &TokenId) -> Result<Option<Row>> {
        let key = Key::new(vec![PARTITION.into()], vec![Value::from(id.as_str())]);
        Ok(self.tables.get(table, &key).await?)
    }

    /// Stores the last uses of tokens. The use of a token that was revoked meanwhile is deleted again.
    pub(crate) async fn record_uses(&self, uses: &[(TokenId, Timestamp)]) -> Result<()> {
        let mut batch = partition_batch();
        for (id, used_at) in uses {
            UseRow { id: id.as_str().to_owned(), used_at: *used_at }.put(&mut batch, *used_at);
        }
        self.tables.write(Vec::new(), batch).await?;
        // The tokens are looked up after the write. So this lookup finds a concurrent revocation, or the revocation
        // finds the use.
        let is_revoked = async |used: &(TokenId, Timestamp)| -> Result<_> {
            Ok(self.row(&TOKENS, &used.0).await?.is_none().then(|| used.clone()))
        };
        let mut lookups = stream::iter(uses).map(is_revoked).buffer_unordered(CONCURRENT_LOOKUPS);
        let mut batch = partition_batch();
        while let Some(revoked) = lookups.next().await {
            if let Some((id, used_at)) = revoked? {
                batch.delete(&TOKEN_USES, vec![id.as_str().into()], used_at.just_after());
            }
        }
        if !batch.mutations.is_empty() {
            self.tables.write(Vec::new(), batch).await?;
        }
        Ok(())
    }
}

fn partition_batch() -> Batch {
    Batch::new(vec![PARTITION.into()])
}

/// The error for a missing random number. The system is at fault, and not the caller.
fn no_random_numbers(error: getrandom::Error) -> Error {
    StoreError::unavailable(format!("the operating system has no random numbers: {error}")).into()
}

fn unreadable(column: &str) -> Error {
    StoreError::Corrupt(format!("the table tokens has a row with a wrong {column}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_random_numbers_are_no_fault_of_the_caller() {
        let error = no_random_numbers(getrandom::Error::UNSUPPORTED);
        assert!(matches!(error, Error::Store(StoreError::Unavailable(_))), "{error:?}");
    }
}
