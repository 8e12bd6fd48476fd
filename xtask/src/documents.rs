//! The `cargo xtask` commands in the documents, for tests that check them against the programs.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A command line in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentedCommand {
    /// The file with the command.
    pub document: PathBuf,
    /// The words after `cargo xtask`, without a comment.
    pub words: Vec<String>,
    /// Whether the command is a line of a `console` block, to be pasted into a shell. If not, it is inline
    /// code in a sentence, and arguments may be missing.
    pub is_whole: bool,
}

/// The code blocks in a language, such as `sh`, of a document that is named by its path in the workspace.
pub fn code_blocks(document: &str, language: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(crate::root().join(document)).with_context(|| document.to_owned())?;
    Ok(code_blocks_in(&text, language))
}

fn code_blocks_in(text: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None::<String>);
    for event in Parser::new(text) {
        match (event, &mut open) {
            (Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(found))), _) if &*found == language => {
                open = Some(String::new());
            }
            (Event::Text(part), Some(block)) => block.push_str(&part),
            (Event::End(TagEnd::CodeBlock), _) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

/// All command lines that begin with `cargo xtask`, in README.md, CONTRIBUTING.md and `docs/*.md`.
pub fn commands() -> Result<Vec<DocumentedCommand>> {
    let mut documents = vec![crate::root().join("README.md"), crate::root().join("CONTRIBUTING.md")];
    for entry in fs::read_dir(crate::root().join("docs")).context("no folder docs")? {
        documents.push(entry?.path());
    }
    let mut commands = Vec::new();
    for document in documents.into_iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let text = fs::read_to_string(&document)?;
        commands.extend(commands_in(&text).into_iter().map(|(words, is_whole)| DocumentedCommand {
            document: document.clone(),
            words,
            is_whole,
        }));
    }
    Ok(commands)
}

fn commands_in(text: &str) -> Vec<(Vec<String>, bool)> {
    let mut is_console = false;
    let mut commands = Vec::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                is_console = &*language == "console";
            }
            Event::End(TagEnd::CodeBlock) => is_console = false,
            Event::Code(code) => commands.extend(words_of(&code).map(|words| (words, false))),
            Event::Text(block) if is_console => {
                let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
                commands.extend(lines.filter_map(words_of).map(|words| (words, true)));
            }
            _ => {}
        }
    }
    commands
}

fn words_of(command: &str) -> Option<Vec<String>> {
    let words = command.strip_prefix("cargo xtask ")?.split(" #").next()?;
    Some(words.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_blocks_of_one_language_are_found() {
        let text = "1. First:\n\n   ```sh\n   a\n   b\n   ```\n\n`c`\n\n```toml\nd = 1\n```\n";
        assert_eq!(code_blocks_in(text, "sh"), ["a\nb\n"]);
        assert_eq!(code_blocks_in(text, "toml"), ["d = 1\n"]);
    }

    #[test]
    fn commands_are_found_in_inline_code_and_in_console_blocks() {
        let text = "Run `cargo xtask tidy` or `cargo build`.\n\n```console\n$ cargo xtask test --only x   # why\n```\n";
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(commands_in(text), [(words("tidy"), false), (words("test --only x"), true)]);
    }
}
