//! Checks the commands, settings and tables in the documents against the program.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::configuration::{RawSettings, Settings};
use clap::{CommandFactory as _, error::ErrorKind};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use rashomon_pages::{BucketName, schemas};

use crate::{arguments::Arguments, exit::Exit};

/// A piece of code in a document.
struct Code {
    document: String,
    /// The language of a block's fence; `None` for code within a line.
    language: Option<String>,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All code in the documents for users and contributors.
fn codes() -> Vec<Code> {
    let mut documents = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    let folder = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(folder.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    assert!(documents.len() > 8, "{documents:?}");
    documents.iter().flat_map(|path| codes_of(path)).collect()
}

fn codes_of(path: &Path) -> Vec<Code> {
    let text = fs::read_to_string(path).unwrap();
    let document = path.file_name().unwrap().to_str().unwrap().to_owned();
    let code = |language, text| Code { document: document.clone(), language, text };
    let mut codes = Vec::new();
    let mut block: Option<(String, String)> = None;
    for event in Parser::new_ext(&text, pulldown_cmark::Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                block = Some((language.into_string(), String::new()));
            }
            Event::Text(text) => {
                if let Some((_, block)) = &mut block {
                    block.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                codes.extend(block.take().map(|(language, text)| code(Some(language), text)));
            }
            Event::Code(text) => codes.push(code(None, text.into_string())),
            _ => {}
        }
    }
    codes
}

impl Code {
    /// The command lines in the code, without prompts and comments.
    fn commands(&self) -> Vec<String> {
        let without_comment = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
        match self.language.as_deref() {
            None => vec![self.text.clone()],
            Some("console") => {
                self.text.lines().filter_map(|line| line.strip_prefix("$ ")).map(without_comment).collect()
            }
            Some("sh") => self.text.lines().map(without_comment).collect(),
            Some(_) => Vec::new(),
        }
    }
}

/// The words of a `rashomon` command line; `None` for another program. In a pipe, the words of the first command.
fn words_of(command: &str) -> Option<Vec<String>> {
    let words = split(command.split([';', '|', '>']).next()?);
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rashomon" | "target/release/rashomon", rest @ ..]
        | ["cargo", "run", "--release", "--", rest @ ..] => {
            Some(["rashomon"].iter().chain(rest).map(|word| (*word).to_owned()).collect())
        }
        _ => None,
    }
}

/// Splits at spaces that are not between quotes.
fn split(command: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in command.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (letter, None) if letter.is_whitespace() => words.push(String::new()),
            (letter, _) => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the reason why the program does not accept a command. A command that is not whole may lack required
/// arguments.
fn refusal(words: &[String], is_whole: bool) -> Option<String> {
    let error = Arguments::command().try_get_matches_from(words).err()?;
    let is_short = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_help && (is_whole || !is_short)).then(|| error.to_string())
}

#[test]
fn commands_in_the_documents_are_accepted_by_the_program() {
    let mut wrong = Vec::new();
    let mut taken = 0;
    for code in codes() {
        for command in code.commands() {
            let Some(words) = words_of(&command) else { continue };
            taken += 1;
            if let Some(refusal) = refusal(&words, code.language.is_some()) {
                wrong.push(format!("{}: {command}\n{refusal}", code.document));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(taken > 20, "only {taken} commands were found");
}

#[test]
fn flags_in_the_documents_are_known() {
    /// Flags of other programs in the repository, and of `cargo` and `nodetool`.
    const OTHERS: &[&str] = &[
        "--list",
        "--only",
        "--skip",
        "--nodes",
        "--for-tests",
        "--runs",
        "--json",
        "--alone",
        "--hot",
        "--seed",
        "--histories",
        "--collector",
        "--release",
        "--profile",
        "--all",
        "--cassandra",
        "--failover",
        "--keys",
        "--quick",
        "--varnish",
        "--since",
        "--backend",
        "--timelines",
    ];
    fn flags(command: &clap::Command, known: &mut BTreeSet<String>) {
        known.extend(command.get_arguments().filter_map(|flag| Some(format!("--{}", flag.get_long()?))));
        command.get_subcommands().for_each(|command| flags(command, known));
    }
    let mut known: BTreeSet<String> = OTHERS.iter().map(|flag| (*flag).to_owned()).collect();
    known.extend(["--help".to_owned(), "--version".to_owned()]);
    flags(&Arguments::command(), &mut known);
    for code in codes().iter().filter(|code| code.language.is_none()) {
        let flag = code.text.split([' ', '=']).next().unwrap_or_default();
        assert!(!flag.starts_with("--") || known.contains(flag), "{}: no command has {flag}", code.document);
    }
}

#[test]
fn toml_in_the_documents_is_a_configuration() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut blocks = 0;
    for code in codes().iter().filter(|code| code.language.as_deref() == Some("toml")) {
        fs::write(file.path(), &code.text).unwrap();
        // The files of an example do not exist here.
        let load = if code.text.contains("/etc/") { Settings::load_offline } else { Settings::load };
        let loaded = load(RawSettings::default(), Some(file.path()));
        assert!(loaded.is_ok(), "{}:\n{}\n{}", code.document, code.text, loaded.unwrap_err());
        blocks += 1;
    }
    assert!(blocks > 5, "only {blocks} blocks were found");
}

#[test]
fn queries_in_the_documents_are_of_existing_tables() {
    let mut queries = 0;
    for code in codes().iter().filter(|code| code.text.contains("SELECT") && code.text.contains("FROM ")) {
        let rest = code.text.split("FROM ").nth(1).unwrap_or_default();
        let name = rest.split([' ', ';', '\n', '`']).next().unwrap_or_default();
        let name = name.rsplit('.').next().unwrap_or_default();
        if name.is_empty() || name.chars().any(char::is_uppercase) {
            continue;
        }
        queries += 1;
        let is_known = name == "migrations" || schemas::all().iter().any(|schema| schema.name() == name);
        assert!(is_known, "{}: there is no table {name}", code.document);
        for bucket in code.text.split("bucket = '").skip(1) {
            let bucket = bucket.split('\'').next().unwrap_or_default();
            assert_eq!(bucket, BucketName::page().as_str(), "{}: not the bucket of pages", code.document);
        }
    }
    assert!(queries >= 2, "only {queries} queries were found");
}

/// The unit for systemd has a command and exit codes of the program, and room for its limits.
#[test]
fn unit_for_systemd_fits_the_program() {
    let unit = fs::read_to_string(root().join("docs/rashomon.service")).unwrap();
    let value = |key: &str| {
        let mut values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.next().unwrap_or_else(|| panic!("the unit has no {key}"))
    };
    let number = |key: &str| value(key).parse::<u64>().unwrap();

    let command = value("ExecStart").strip_prefix("/usr/local/bin/").expect("a path for local programs");
    let words = words_of(command).expect("a command of rashomon");
    assert_eq!(refusal(&words, true), None);
    assert_eq!(words[1], "serve");
    let codes = |key: &str| value(key).split(' ').map(|code| code.parse().unwrap()).collect::<Vec<u8>>();
    assert_eq!(codes("RestartPreventExitStatus"), [Exit::Usage.code()]);
    assert_eq!(codes("SuccessExitStatus"), [Exit::Interrupted.code(), Exit::Terminated.code()]);

    let settings = Settings::load(RawSettings::default(), None).unwrap().merged;
    assert!(number("TimeoutStopSec") > 2 * settings.shutdown_grace.0.as_secs());
    assert!(number("LimitNOFILE") >= settings.max_connections.get() as u64 + 1000);

    let shown = codes_of(&root().join("docs/systemd.md"));
    let shown = shown.iter().find(|code| code.language.as_deref() == Some("ini")).expect("the page shows it");
    assert_eq!(shown.text, unit);
}

/// A table that is in no step of a snapshot would be missing in every backup.
#[test]
fn snapshot_script_has_each_table_once() {
    let script = fs::read_to_string(root().join("docs/cassandra-snapshot.sh")).unwrap();
    let steps = script.split("tables='").skip(1).map(|rest| rest.split('\'').next().unwrap_or_default());
    let mut tables: Vec<&str> = steps.flat_map(str::split_whitespace).collect();
    tables.sort_unstable();
    let mut known = schemas::all().map(rashomon_tables::Schema::name);
    known.sort_unstable();
    assert_eq!(tables, known);
}

#[test]
fn wrong_commands_are_found() {
    let refused = |command: &str, is_whole| refusal(&words_of(command).unwrap(), is_whole).is_some();
    assert!(refused("rashomon export --format json-lines", false));
    assert!(refused("rashomon exports", false));
    assert!(refused("rashomon verify --no-such-flag", false));
    assert!(refused("rashomon import", true));
    assert!(!refused("rashomon import", false));
    assert!(!refused("cargo run --release -- demo", true));
    assert_eq!(split("a \"b c\" 'd'"), ["a", "b c", "d"]);
}
