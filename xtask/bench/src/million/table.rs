//! The wiki in a table of SQLite, without compression, and without a server: how fast and how small a plain table is.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use fastrand::Rng;
use rashomon_clock::{Clock, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use super::{
    requests::{Kind, add_latency},
    wiki::{Known, Wiki, title},
};
use crate::{load, report::Report};

/// The table, with durable commits.
const SCHEMA: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     CREATE TABLE revisions (title TEXT, number INTEGER, time INTEGER, user TEXT, comment TEXT, text TEXT, \
         PRIMARY KEY (title, number)) WITHOUT ROWID; \
     CREATE INDEX by_time ON revisions (title, time)";
const INSERT: &str = "INSERT INTO revisions VALUES (?, ?, ?, ?, ?, ?)";
/// The number of revisions of a transaction of the import.
const TRANSACTION: u64 = 10_000;

/// A file with the table.
pub(super) struct Table<'a> {
    connection: Connection,
    wiki: &'a Wiki,
    clock: &'a dyn Clock,
    limit: Duration,
}

impl<'a> Table<'a> {
    /// Fills a new table with the wiki.
    pub(super) fn fill(
        file: &Path,
        wiki: &'a Wiki,
        clock: &'a dyn Clock,
        limit: Duration,
        report: &mut Report,
    ) -> Result<Self> {
        let connection = Connection::open(file)?;
        connection.execute_batch(SCHEMA)?;
        let started = clock.monotonic();
        connection.execute_batch("BEGIN")?;
        let mut insert = connection.prepare(INSERT)?;
        let mut inserted = 0;
        wiki.each(|entry| {
            let time = entry.time.as_micros();
            insert.execute(params![
                entry.title,
                entry.number as i64,
                time,
                entry.user,
                entry.comment,
                entry.text
            ])?;
            inserted += 1;
            if inserted % TRANSACTION == 0 {
                connection.execute_batch("COMMIT; BEGIN")?;
            }
            anyhow::Ok(())
        })?;
        drop(insert);
        connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
        let seconds = (clock.monotonic() - started).as_secs_f64();
        report.add("import", "s", seconds);
        report.add("import, revisions", "a second", wiki.revisions() as f64 / seconds);
        report.add("store", "MB", file.metadata()?.len() as f64 / 1e6);
        Ok(Self { connection, wiki, clock, limit })
    }

    /// Reads random pages.
    pub(super) fn reads(&self, count: usize, rng: &mut Rng, report: &mut Report) -> Result<()> {
        // The table has no tids.
        for kind in [Kind::Latest, Kind::List, Kind::Number, Kind::Time] {
            let pages: Vec<u32> = (0..count).map(|_| rng.u32(..self.wiki.pages())).collect();
            let histories = self.wiki.histories(&pages);
            let measured = load::repeat(pages, self.limit, self.clock, |page| {
                let known = &histories[&page];
                self.read(kind, &title(page), &known[rng.usize(..known.len())], known)
            })?;
            add_latency(report, kind.name(), &measured);
        }
        Ok(())
    }

    fn read(&self, kind: Kind, title: &str, revision: &Known, known: &[Known]) -> Result<()> {
        const LATEST: &str = "SELECT text FROM revisions WHERE title = ? ORDER BY number DESC LIMIT 1";
        const NUMBER: &str = "SELECT text FROM revisions WHERE title = ? AND number = ?";
        const TIME: &str =
            "SELECT text FROM revisions WHERE title = ? AND time <= ? ORDER BY time DESC LIMIT 1";
        let latest = &known[known.len() - 1];
        let (text, expected) = match kind {
            Kind::Latest => (self.text(LATEST, [title])?, latest),
            Kind::Number | Kind::Tid => {
                (self.text(NUMBER, params![title, revision.number as i64])?, revision)
            }
            Kind::Time => (self.text(TIME, params![title, revision.time.as_micros()])?, revision),
            Kind::List => {
                let sql = "SELECT number, time, user, comment, length(text) FROM revisions WHERE title = ?";
                let mut list = self.connection.prepare_cached(sql)?;
                let listed = list.query_map([title], |row| row.get::<_, i64>(0))?.count();
                ensure!(listed == known.len(), "{title} has {listed} revisions in the table");
                return Ok(());
            }
        };
        ensure!(text.as_ref() == Some(&expected.text), "the table has another text of {title}");
        Ok(())
    }

    fn text(&self, sql: &str, params: impl Params) -> Result<Option<String>> {
        Ok(self.connection.prepare_cached(sql)?.query_row(params, |row| row.get(0)).optional()?)
    }

    /// Inserts a revision of random pages, each with a commit of its own.
    pub(super) fn writes(&self, count: usize, rng: &mut Rng, report: &mut Report) -> Result<()> {
        let first = self.wiki.revisions() + 1;
        let text = "new text ".repeat(self.wiki.bytes().div_ceil(9));
        let time = Timestamp::from_micros(i64::try_from(Duration::from_secs(1_800_000_000).as_micros())?);
        let numbers = first..first + count as u64;
        let measured = load::repeat(numbers, self.limit, self.clock, |number| {
            let title = title(rng.u32(..self.wiki.pages()));
            let row = params![title, number as i64, time.as_micros(), "U", "c", text];
            self.connection.prepare_cached(INSERT)?.execute(row)?;
            Ok(())
        })?;
        add_latency(report, "POST to a random page", &measured);
        Ok(())
    }

    /// Reads the whole table, and adds up what it holds.
    pub(super) fn walks(&self, report: &mut Report) -> Result<()> {
        let started = self.clock.monotonic();
        let sql = "SELECT count(*), count(DISTINCT title), sum(length(text)) FROM revisions";
        self.connection.query_row(sql, [], |row| row.get::<_, i64>(0))?;
        report.add("stats", "s", (self.clock.monotonic() - started).as_secs_f64());
        let started = self.clock.monotonic();
        let mut all = self.connection.prepare("SELECT * FROM revisions ORDER BY title, number")?;
        let mut rows = all.query([])?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(5)?.as_bytes()?.len();
        }
        ensure!(bytes > 0, "the table is empty");
        let seconds = (self.clock.monotonic() - started).as_secs_f64();
        report.add(EXPORT, "s", seconds);
        report.add(&format!("{EXPORT}, revisions"), "a second", self.wiki.revisions() as f64 / seconds);
        Ok(())
    }
}

/// The figure that a walk through the whole table is compared with.
pub(super) const EXPORT: &str = "export --history, JSON lines";

#[cfg(test)]
mod tests {
    use rashomon_clock::SystemClock;

    use super::{super::wiki::Shape, *};

    #[test]
    fn table_is_filled_read_and_written() {
        let wiki = Wiki::new(Shape { pages: 20, revisions: 3, bytes: 100, mix: false, seed: 1 });
        let (folder, clock, mut report) =
            (tempfile::tempdir().unwrap(), SystemClock::new(), Report::new("table", ""));
        let (file, limit) = (folder.path().join("table.sqlite"), Duration::from_secs(60));
        let table = Table::fill(&file, &wiki, &clock, limit, &mut report).unwrap();
        let mut rng = Rng::with_seed(1);
        table.reads(30, &mut rng, &mut report).unwrap();
        table.walks(&mut report).unwrap();
        table.writes(10, &mut rng, &mut report).unwrap();
        let rows: i64 =
            table.connection.query_row("SELECT count(*) FROM revisions", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 70);
        table.connection.execute("UPDATE revisions SET text = ''", []).unwrap();
        assert!(table.reads(1, &mut rng, &mut report).is_err());
    }
}
