//! The file format of callgrind: functions, the lines that ran, and calls.
//!
//! A file has each name once, as `(id) name`, and only `(id)` after that. A line number is absolute, or relative to the
//! previous line number: `+3`, `-2`, or `*` for the same line. The line number of a call is relative, too, but no other
//! number is relative to the line number of a call. Of the costs, only the total is read.

use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

use anyhow::{Context, Result, bail, ensure};

/// A file that callgrind wrote.
#[derive(Debug, Default)]
pub(super) struct Profile {
    pub(super) functions: Vec<Function>,
    pub(super) calls: Vec<Call>,
    /// The instructions that ran.
    pub(super) instructions: u64,
    /// The bytes that the process passed to the system during the recording. The file does not have this number.
    pub(super) written_bytes: u64,
}

/// A function that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) symbol: String,
    /// The source file of its first instruction.
    pub(super) file: String,
    /// The files and lines that ran. Inlined code has other files.
    pub(super) lines: BTreeSet<(Rc<str>, usize)>,
}

/// Calls of one function by another. Both are indices of [`Profile::functions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) caller: usize,
    pub(super) callee: usize,
    pub(super) count: u64,
}

impl Profile {
    /// Reads the text of a file.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser::new();
        for (index, line) in text.lines().enumerate() {
            parser.line(line).with_context(|| format!("line {}: `{line}`", index + 1))?;
        }
        ensure!(parser.has_events, "this is not a file of callgrind");
        Ok(parser.profile)
    }
}

/// Names by their numbers.
#[derive(Debug, Default)]
struct Names(HashMap<String, Rc<str>>);

impl Names {
    /// The name in `(id) name`, `(id)` or `name`.
    fn resolve(&mut self, text: &str) -> Result<Rc<str>> {
        let Some((id, name)) = text.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
            return Ok(text.into());
        };
        // A name that is not compressed may begin with a bracket: `(below main)`.
        if id.is_empty() || !id.bytes().all(|digit| digit.is_ascii_digit()) {
            return Ok(text.into());
        }
        if let Some(name) = name.strip_prefix(' ') {
            self.0.insert(id.to_owned(), name.into());
        }
        self.0.get(id).cloned().with_context(|| format!("the number {id} has no name"))
    }
}

/// The position of a function: its object file, source file and symbol.
type FunctionPosition = (Rc<str>, Rc<str>, Rc<str>);

#[derive(Debug)]
struct Parser {
    profile: Profile,
    has_events: bool,
    objects: Names,
    files: Names,
    symbols: Names,
    indices: HashMap<FunctionPosition, usize>,

    object: Rc<str>,
    file: Rc<str>,
    /// The file of the following lines. It differs from the function's file where another function is
    /// inlined.
    line_file: Rc<str>,
    function: Option<usize>,
    line: usize,

    callee_object: Option<Rc<str>>,
    callee_file: Option<Rc<str>>,
    callee: Option<usize>,
    /// Whether the next line is the position of a call.
    is_call: bool,
}

impl Parser {
    fn new() -> Self {
        let none: Rc<str> = "".into();
        Self {
            profile: Profile::default(),
            has_events: false,
            objects: Names::default(),
            files: Names::default(),
            symbols: Names::default(),
            indices: HashMap::new(),
            object: Rc::clone(&none),
            file: Rc::clone(&none),
            line_file: none,
            function: None,
            line: 0,
            callee_object: None,
            callee_file: None,
            callee: None,
            is_call: false,
        }
    }

    fn line(&mut self, line: &str) -> Result<()> {
        if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            return self.position(line);
        }
        if let Some(columns) = line.strip_prefix("positions:") {
            ensure!(columns.trim() == "line", "the positions are not lines alone");
            return Ok(());
        }
        if line.starts_with("events:") {
            self.has_events = true;
            return Ok(());
        }
        if let Some(instructions) = line.strip_prefix("totals:") {
            self.profile.instructions = instructions.trim().parse()?;
            return Ok(());
        }
        let Some((key, value)) = line.split_once('=') else { return Ok(()) };
        match key {
            "ob" => self.object = self.objects.resolve(value)?,
            "fl" => self.file = self.files.resolve(value)?,
            "fi" | "fe" => self.line_file = self.files.resolve(value)?,
            "fn" => {
                let symbol = self.symbols.resolve(value)?;
                self.function = Some(self.index((self.object.clone(), self.file.clone(), symbol)));
                self.line_file = Rc::clone(&self.file);
                self.line = 0;
            }
            "cob" => self.callee_object = Some(self.objects.resolve(value)?),
            "cfi" | "cfl" => self.callee_file = Some(self.files.resolve(value)?),
            "cfn" => {
                let object = self.callee_object.take().unwrap_or_else(|| self.object.clone());
                let file = self.callee_file.take().unwrap_or_else(|| self.line_file.clone());
                let symbol = self.symbols.resolve(value)?;
                self.callee = Some(self.index((object, file, symbol)));
            }
            "calls" => {
                let count = value.split(' ').next().unwrap_or_default().parse()?;
                let caller = self.function.context("a call outside of a function")?;
                let callee = self.callee.take().context("a call of no function")?;
                self.profile.calls.push(Call { caller, callee, count });
                self.is_call = true;
            }
            _ if self.has_events => bail!("unknown key `{key}`"),
            // A line of the file's head, such as the command.
            _ => {}
        }
        Ok(())
    }

    /// Reads a line that begins with a line number.
    fn position(&mut self, line: &str) -> Result<()> {
        let number = line.split(' ').next().unwrap_or_default();
        let number = match number.split_at(1) {
            ("*", "") => self.line,
            ("+", more) => self.line.checked_add(more.parse()?).context("the line number is too large")?,
            ("-", less) => self.line.checked_sub(less.parse()?).context("the line number is below zero")?,
            _ => number.parse()?,
        };
        let function = self.function.context("a line outside of a function")?;
        if std::mem::take(&mut self.is_call) {
            return Ok(());
        }
        self.line = number;
        // Callgrind gives the line 0 to an instruction without a line.
        if number > 0 {
            self.profile.functions[function].lines.insert((Rc::clone(&self.line_file), number));
        }
        Ok(())
    }

    fn index(&mut self, position: FunctionPosition) -> usize {
        if let Some(index) = self.indices.get(&position) {
            return *index;
        }
        let index = self.profile.functions.len();
        let (symbol, file) = (position.2.to_string(), position.1.to_string());
        self.profile.functions.push(Function { symbol, file, lines: BTreeSet::new() });
        self.indices.insert(position, index);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# callgrind format
version: 1
creator: callgrind-3.19.0
cmd:  rashomon serve --config=a
part: 1

positions: line
events: Ir
summary: 90

ob=(1) /bin/rashomon
fl=(1) /src/a.rs
fn=(1) a::one
10 4
+2 3
cob=(2) /lib/libc.so
cfi=(2) ???
cfn=(2) (below main)
calls=1 0
+40 20
-1 2
fi=(3) /src/core.rs
700 1
cfn=(3) core::map
calls=2 701
+3 8
-700 1
fe=(1)
12 1

fn=(4) a::two
20 1
cfn=(1)
calls=3 10
20 30

fl=(3)
fn=(3)
701 8

totals: 90
";

    #[test]
    fn functions_have_files_and_lines() {
        let (own, core) = ("/src/a.rs", "/src/core.rs");
        let profile = Profile::parse(FILE).unwrap();
        let found: Vec<_> = (profile.functions.iter())
            .map(|function| {
                let lines: Vec<_> = function.lines.iter().map(|(file, line)| (&**file, *line)).collect();
                (&*function.symbol, &*function.file, lines)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("a::one", own, vec![(own, 10), (own, 11), (own, 12), (core, 700)]),
                ("(below main)", "???", vec![]),
                ("core::map", core, vec![(core, 701)]),
                ("a::two", own, vec![(own, 20)]),
            ]
        );
    }

    #[test]
    fn calls_have_caller_callee_and_count() {
        let profile = Profile::parse(FILE).unwrap();
        let call = |caller, callee, count| Call { caller, callee, count };
        assert_eq!(profile.calls, [call(0, 1, 1), call(0, 2, 2), call(3, 0, 3)]);
        assert_eq!(profile.instructions, 90);
    }

    #[test]
    fn damaged_files_are_errors() {
        for (text, message) in [
            ("events: Ir\nfn=(7)\n", "no name"),
            ("events: Ir\n7 1\n", "outside of a function"),
            ("events: Ir\nfn=(1) a\n-7 1\n", "below zero"),
            ("events: Ir\nfn=(1) a\ncalls=1 7\n", "no function"),
            ("events: Ir\nfn=(1) a\nxyz=(1)\n", "unknown key"),
            ("positions: instr line\nevents: Ir\n", "not lines alone"),
            ("fn=(1) a\n", "not a file of callgrind"),
        ] {
            let error = format!("{:#}", Profile::parse(text).unwrap_err());
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
