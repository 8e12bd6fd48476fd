//! Stored rows: a read of a page with any rows returns the rows, or an error that reports damage of the
//! store.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, header};
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_pages::schemas;
use rashomon_tables::{Batch, ColumnType, Memory, Schema, TableStore, TimeUuid, Value};

use crate::fuzz_targets::http::{NOW, api, run, send};

/// The maximum number of rows in an input.
const MAX_ROWS: usize = 32;

/// Requests that read the page.
const READS: [&str; 7] =
    ["?rev/", "?rev/latest/", "?rev/latest/wikitext", "?rev/1/", "?rev/1/html", "?timemap/", "?html"];

/// Any bytes are accepted as a key and a row of the SQLite store, or are refused. A row that is written can
/// be read back unchanged.
pub fn sqlite_rows(input: &[u8]) {
    rashomon_tables_sqlite::fuzzing::keys_and_rows(input);
}

/// Any rows of the page's tables can be read, or are reported as damaged.
pub fn stored_rows(input: &[u8]) {
    run(async {
        let clock = Arc::new(ManualClock::new(NOW));
        let store = Arc::new(Memory::new(clock.clone()));
        let api = api(store.clone(), clock.clone()).await;
        let mut fields = Fields(input);
        for _ in 0..MAX_ROWS {
            if !write_row(&store, &mut fields).await {
                break;
            }
        }
        for read in READS {
            let url = format!("http://localhost/v1/enwiki/page/Main_Page{read}");
            let request = Request::get(url).header(header::HOST, "localhost").body(Body::empty());
            let (status, body) = send(&api, request.expect("the URL is good")).await;
            let body = String::from_utf8_lossy(&body);
            assert!(!body.contains("urn:rashomon:problem:internal"), "{read}: {status}: {body}");
        }
    });
}

/// Writes the next row of the input; `false` at the end of the input.
async fn write_row(store: &Memory, fields: &mut Fields<'_>) -> bool {
    let of_a_page = |schema: &&Schema| {
        let columns: Vec<_> = schema.partition().iter().map(|column| column.name).collect();
        columns == ["domain", "bucket", "title"]
    };
    let tables: Vec<_> = schemas::all().into_iter().filter(of_a_page).collect();
    let Some(number) = fields.byte() else { return false };
    let schema: &'static Schema = tables[usize::from(number) % tables.len()];
    let page = ["enwiki", "page", "Main_Page"].map(|name| Value::Text(name.to_owned())).to_vec();
    let clustering: Option<Vec<_>> =
        schema.clustering().iter().map(|(column, _)| fields.value(column.column_type)).collect();
    let Some(clustering) = clustering else { return false };
    let values = schema.values().iter().map(|column| fields.optional(column.column_type)).collect();
    let mut batch = Batch::new(page);
    batch.put(schema, clustering, values, NOW);
    // A table may refuse rows, such as a table that accepts conditional writes only.
    let _ = store.write(Vec::new(), batch).await;
    true
}

/// The rest of an input.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// Reads a length byte and as many bytes.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?);
        let (bytes, rest) = self.0.split_at(self.0.len().min(len));
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a small number from one byte, or a number of eight bytes.
    fn number(&mut self) -> Option<i64> {
        match self.byte()? {
            0xff => {
                let (bytes, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Some(i64::from_le_bytes(*bytes))
            }
            small => Some(i64::from(small)),
        }
    }

    fn value(&mut self, column: ColumnType) -> Option<Value> {
        Some(match column {
            ColumnType::Text => Value::Text(String::from_utf8_lossy(self.bytes()?).into_owned()),
            ColumnType::Blob => Value::Blob(Bytes::copy_from_slice(self.bytes()?)),
            ColumnType::Int => Value::Int(self.number()?),
            ColumnType::Timestamp => Value::Timestamp(Timestamp::from_micros(self.number()?)),
            ColumnType::TimeUuid => {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&self.number()?.to_be_bytes());
                Value::TimeUuid(TimeUuid::from_ordered_bytes(bytes)?)
            }
        })
    }

    /// Reads a value. `None` if the byte before the value is 0.
    fn optional(&mut self, column: ColumnType) -> Option<Value> {
        if self.byte()? == 0 { None } else { self.value(column) }
    }
}
