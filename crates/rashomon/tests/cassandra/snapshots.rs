//! Backup with `nodetool snapshot`, and restore, by the commands of docs/cassandra-backup.md.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use scylla::{client::session::Session, statement::Statement};

use crate::{
    cluster::run_statements,
    home::Home,
    http::post,
    piece_set::letters,
    test_stores::{ask, nodetool_program, storage},
    wiki::dump,
};

/// The folder with cassandra-backup.md, and with the script that its commands run.
const DOCS_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// These domains are sealed between the steps of the snapshot: the first domain after step 1, the second after step 2,
/// and the third after step 3.
const SEALED_BETWEEN_STEPS: [&str; 3] = ["first", "second", "third"];

/// The domain that is written to after each step.
const BUSY: &str = "busy";

/// The shell commands of cassandra-backup.md: one text for each code block with the language `sh`.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(Path::new(DOCS_FOLDER).join("cassandra-backup.md")).unwrap();
    let (mut blocks, mut is_in_block) = (Vec::new(), false);
    for event in Parser::new(&page) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) if &*language == "sh" => {
                is_in_block = true;
                blocks.push(String::new());
            }
            Event::Text(text) if is_in_block => blocks.last_mut().unwrap().push_str(&text),
            Event::End(TagEnd::CodeBlock) => is_in_block = false,
            _ => {}
        }
    }
    blocks
}

/// An operator's shell, with a `nodetool` for the node, and the variables that cassandra-backup.md uses.
struct Shell {
    programs: String,
    variables: [(&'static str, String); 5],
}

impl Shell {
    fn new(home: &Home, nodetool: PathBuf, storage: &Path) -> Self {
        let programs = home.path().join("programs");
        fs::create_dir(&programs).unwrap();
        symlink(nodetool, programs.join("nodetool")).unwrap();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        Self {
            programs: format!("{}:{}", path(&programs), std::env::var("PATH").unwrap()),
            variables: [
                ("KEYSPACE", home.stores.keyspace("data")),
                ("NAME", home.stores.keyspace("data")),
                ("BACKUP", path(&home.path().join("backup"))),
                ("DATA", path(&storage.join("data"))),
                ("RESTORED", home.stores.keyspace("restored")),
            ],
        }
    }

    #[track_caller]
    fn run(&self, text: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-euc", text]).current_dir(DOCS_FOLDER).env("PATH", &self.programs);
        let output = shell.envs(self.variables.iter().cloned()).output().expect("sh starts");
        assert!(output.status.success(), "{text}: {output:?}");
    }
}

fn import(home: &Home, domain: &str, dump: &str) {
    home.write("dump.xml", dump);
    home.run(&["import", "--domain", domain, "dump.xml"]).ends_with(0);
}

/// Exports a domain of a store.
fn export(home: &Home, store: &str, domain: &str) -> String {
    let words = ["export", "--domain", domain, "--history", "--format", "jsonl"];
    home.run_on(store, &words).ends_with(0).stdout
}

/// Stores pages that have revisions to seal, a body in chunks, and a render.
fn fill(home: &Home) {
    let large = letters(7, 1_300_000);
    for domain in SEALED_BETWEEN_STEPS {
        import(home, domain, &dump("A", &[("1", "one"), ("2", &large), ("3", "three"), ("4", "four")]));
        import(home, domain, &dump("B", &[("11", "eleven"), ("12", "twelve"), ("13", &large)]));
    }
    let (server, address) = home.serve(&[]);
    for domain in SEALED_BETWEEN_STEPS {
        let written = post(&address, &format!("/v1/{domain}/page/A?rev/2/"), "html=a+render");
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    }
    server.stop().ends_with(0);
}

/// Sets the flag that ends a thread, even if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a step while the node flushes. Whenever a table of any keyspace is dropped, the node flushes all tables:
/// it replaces their memtables at once, and writes them one after the other. A full commit log has the same
/// effect.
fn run_during_flushes(home: &Home, step: impl FnOnce()) {
    let keyspace = home.stores.keyspace("other");
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    let create_keyspace =
        format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH REPLICATION = {replication};\n");
    let create_and_drop_table =
        format!("CREATE TABLE {keyspace}.dropped (key int PRIMARY KEY);\nDROP TABLE {keyspace}.dropped;\n");
    let is_stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&is_stopped);
        scope.spawn(|| {
            ask(home.stores.node(), async |session| {
                run_statements(&session, &create_keyspace).await;
                while !is_stopped.load(Ordering::Relaxed) {
                    run_statements(&session, &create_and_drop_table).await;
                }
            });
        });
        step();
    });
}

/// The key columns of each row of a keyspace, with the name of the table.
fn keys(home: &Home, store: &str) -> BTreeSet<String> {
    async fn texts(session: &Session, text: String) -> Vec<Vec<String>> {
        let mut statement = Statement::new(text);
        statement.set_request_timeout(Some(Duration::from_secs(60)));
        let rows = session.query_unpaged(statement, ()).await.unwrap().into_rows_result().unwrap();
        let width = rows.column_specs().len();
        let rows = rows.rows::<scylla::value::Row>().unwrap().map(Result::unwrap);
        let text = |column: usize, row: &scylla::value::Row| {
            row.columns[column].as_ref().and_then(|value| value.as_text().cloned()).unwrap_or_default()
        };
        rows.map(|row| (0..width).map(|column| text(column, &row)).collect()).collect()
    }
    let keyspace = home.stores.keyspace(store);
    ask(home.stores.node(), async |session| {
        let columns = format!(
            "SELECT table_name, column_name, kind FROM system_schema.columns WHERE keyspace_name = '{keyspace}'"
        );
        let mut keys = BTreeSet::new();
        let columns = texts(&session, columns).await;
        for table in columns.iter().map(|column| &column[0]).collect::<BTreeSet<_>>() {
            let is_key = |column: &&Vec<String>| column[0] == *table && column[2] != "regular";
            let names: Vec<String> =
                columns.iter().filter(is_key).map(|column| format!("\"{}\"", column[1])).collect();
            let text = format!("SELECT JSON {} FROM {keyspace}.{table}", names.join(", "));
            keys.extend(texts(&session, text).await.into_iter().map(|row| format!("{table}: {}", row[0])));
        }
        keys
    })
}

/// A snapshot loses acknowledged revisions if it refers to a block or a row that is not in it, or if it does not wait
/// for a flush that already runs. No write runs during a step, so `verify` must find no problem.
#[test]
fn snapshot_in_four_steps_keeps_everything_acknowledged_before() {
    let (Some(home), Some(storage)) = (Home::archiving(), storage()) else { return };
    let Some(nodetool) = nodetool_program() else { return };
    let [_, steps, copy, load, repair] = &commands()[..] else {
        panic!("cassandra-backup.md does not have five sh code blocks")
    };
    let shell = Shell::new(&home, nodetool, &storage);
    fill(&home);
    import(&home, BUSY, &dump("Before", &[("1", "before")]));
    let exported = SEALED_BETWEEN_STEPS.map(|domain| export(&home, "data", domain));
    let acknowledged = keys(&home, "data");
    home.pass_a_day();

    assert_eq!(steps.lines().count(), 4, "{steps}");
    for (number, step) in steps.lines().enumerate() {
        run_during_flushes(&home, || shell.run(step));
        if let Some(domain) = SEALED_BETWEEN_STEPS.get(number) {
            let sealed = home.run(&["archive", "seal", "--domain", domain]).ends_with(0);
            sealed.stdout_contains(&["sealed 5 revisions"]);
        }
        import(&home, BUSY, &dump(&format!("Step {}", number + 1), &[("1", "during")]));
    }
    import(&home, SEALED_BETWEEN_STEPS[0], &dump("A", &[("5", "after the snapshot")]));
    shell.run(copy);
    let stored = keys(&home, "data");
    let (node, keyspace) = (home.stores.node(), home.stores.keyspace("data"));
    ask(node, async |session| run_statements(&session, &format!("DROP KEYSPACE {keyspace};\n")).await);

    let schema = home.run_on("restored", &["cassandra", "schema"]).ends_with(0).stdout;
    ask(node, async |session| run_statements(&session, &schema).await);
    shell.run(load);
    shell.run(repair);
    let verified = home.run_on("restored", &["verify"]);
    let restored = keys(&home, "restored");
    let not_restored: BTreeSet<String> = stored.difference(&restored).cloned().collect();
    assert_eq!(verified.code, Some(0), "{verified:#?}; not in the backup: {not_restored:#?}");
    verified.ends_with(0).stdout_contains(&["\nsound: "]);
    // The seals between the steps delete rows. All other rows from before step 1 must be in the restored keyspace.
    let lost: Vec<&String> = acknowledged.intersection(&not_restored).collect();
    assert!(lost.is_empty(), "{lost:#?}");
    assert_eq!(SEALED_BETWEEN_STEPS.map(|domain| export(&home, "restored", domain)), exported);
    let busy = export(&home, "restored", BUSY);
    assert!(busy.contains("\"text\":\"before\""), "{busy}");
}
