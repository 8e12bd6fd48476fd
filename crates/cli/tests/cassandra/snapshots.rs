//! Backup with `nodetool snapshot`, and restore, by the commands of docs/cassandra-backup.md.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use crate::{
    cluster::run_statements,
    home::Home,
    http::post,
    kept::{ask, nodetool_program, storage},
    piece_set::letters,
    wiki::dump,
};

/// The folder of the page and of the script that it uses.
const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// Each of these domains is sealed after another step of the snapshot: the first one after step 1.
const SEALED_DURING: [&str; 3] = ["first", "second", "third"];

/// This domain is written to after each step.
const BUSY: &str = "busy";

/// The shell commands of the page, one text for each block.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(Path::new(DOCUMENTS).join("cassandra-backup.md")).unwrap();
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

/// A shell of an operator, with a `nodetool` for the node and the variables of the page.
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
                ("KEYSPACE", home.kept.keyspace("data")),
                ("NAME", home.kept.keyspace("data")),
                ("BACKUP", path(&home.path().join("backup"))),
                ("DATA", path(&storage.join("data"))),
                ("RESTORED", home.kept.keyspace("restored")),
            ],
        }
    }

    #[track_caller]
    fn run(&self, text: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-euc", text]).current_dir(DOCUMENTS).env("PATH", &self.programs);
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
    for domain in SEALED_DURING {
        import(home, domain, &dump("A", &[("1", "one"), ("2", &large), ("3", "three"), ("4", "four")]));
        import(home, domain, &dump("B", &[("11", "eleven"), ("12", "twelve"), ("13", &large)]));
    }
    let (server, address) = home.serve(&[]);
    for domain in SEALED_DURING {
        let written = post(&address, &format!("/v1/{domain}/page/A?rev/2/"), "html=a+render");
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    }
    server.stop().ends_with(0);
}

/// A snapshot that refers to a block or a row that it lacks would lose acknowledged revisions.
#[test]
fn snapshot_in_four_steps_keeps_everything_acknowledged_before() {
    let (Some(home), Some(storage)) = (Home::archiving(), storage()) else { return };
    let Some(nodetool) = nodetool_program() else { return };
    let [_, steps, copy, load, repair] = &commands()[..] else { panic!("five blocks of commands") };
    let shell = Shell::new(&home, nodetool, &storage);
    fill(&home);
    import(&home, BUSY, &dump("Before", &[("1", "before")]));
    let exported = SEALED_DURING.map(|domain| export(&home, "data", domain));
    home.pass_a_day();

    assert_eq!(steps.lines().count(), 4, "{steps}");
    for (number, step) in steps.lines().enumerate() {
        shell.run(step);
        if let Some(domain) = SEALED_DURING.get(number) {
            let sealed = home.run(&["archive", "seal", "--domain", domain]).ends_with(0);
            sealed.stdout_contains(&["sealed 5 revisions"]);
        }
        import(&home, BUSY, &dump(&format!("Step {number}"), &[("1", "during")]));
    }
    import(&home, SEALED_DURING[0], &dump("A", &[("5", "after the snapshot")]));
    shell.run(copy);
    let (node, keyspace) = (home.kept.node(), home.kept.keyspace("data"));
    ask(node, async |session| run_statements(&session, &format!("DROP KEYSPACE {keyspace};\n")).await);

    let schema = home.run_on("restored", &["cassandra", "schema"]).ends_with(0).stdout;
    ask(node, async |session| run_statements(&session, &schema).await);
    shell.run(load);
    shell.run(repair);
    home.run_on("restored", &["verify"]).ends_with(0).stdout_contains(&["\nsound: "]);
    assert_eq!(SEALED_DURING.map(|domain| export(&home, "restored", domain)), exported);
    let busy = export(&home, "restored", BUSY);
    assert!(busy.contains("\"text\":\"before\""), "{busy}");
}
