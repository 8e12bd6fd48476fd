//! The printed report of a kind of request, and its JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use clap::ValueEnum as _;
use serde_json::{Value, json};

use super::{
    count::{CalledFunction, Class, Costs, FunctionCounts, Key},
    requests::Kind,
    symbol::last_segment,
};

/// The names of the functions whose calls are always printed. These functions read and write the values of rows, and of
/// entries in blocks.
const CODERS: &[&str] =
    &["from_row", "into_row", "from_values", "rev_of_tid", "read_unit", "to_values", "to_archived_values"];

/// The recordings of a kind of request.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) kind: Kind,
    /// The functions that run without a request.
    pub(super) idle: FunctionCounts,
    /// The first request after the start of the server, if its store calls are printed.
    pub(super) first: Option<FunctionCounts>,
    /// Recordings of requests after warm-up requests of the same kind.
    pub(super) recordings: Vec<FunctionCounts>,
}

/// A function, with its calls in each recording. `None` if it did not run in the recording.
struct Entry<'a> {
    key: &'a Key,
    called: &'a CalledFunction,
    calls: Vec<Option<u64>>,
}

impl Class {
    const fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Getter => "getter",
            Self::Generated => "generated",
        }
    }
}

impl Report {
    /// The functions of all recordings, in the order of crates and names.
    fn entries(&self) -> Vec<Entry<'_>> {
        let keys: BTreeSet<&Key> =
            self.recordings.iter().flat_map(|counted| counted.functions.keys()).collect();
        let entry = |key| {
            let found = self.recordings.iter().map(|counted| counted.functions.get(key));
            let called = found.clone().flatten().next()?;
            Some(Entry {
                key,
                called,
                calls: found.map(|called| called.map(|called| called.calls)).collect(),
            })
        };
        let mut entries: Vec<Entry<'_>> = keys.into_iter().filter_map(entry).collect();
        entries.sort_by_key(|entry| (&entry.called.krate, &entry.called.name));
        entries
    }

    /// The functions of [`CODERS`].
    fn coders(&self) -> Vec<Entry<'_>> {
        let mut entries = self.entries();
        entries.retain(|entry| CODERS.contains(&last_segment(&entry.called.name)));
        entries
    }

    /// The number of functions of a class in each recording.
    fn numbers(&self, class: Class) -> Vec<usize> {
        self.recordings.iter().map(|counted| counted.number(class)).collect()
    }

    /// The number of functions of each crate in all recordings, without getters and generated functions.
    fn crates(&self) -> BTreeMap<String, usize> {
        let mut crates = BTreeMap::new();
        for entry in self.entries().iter().filter(|entry| entry.called.class == Class::Function) {
            *crates.entry(entry.called.krate.clone()).or_default() += 1;
        }
        crates
    }

    /// Prints the numbers, and each function if `list` is set.
    pub(super) fn print(&self, list: bool) {
        let [functions, getters, generated] =
            [Class::Function, Class::Getter, Class::Generated].map(|class| each(&self.numbers(class)));
        println!("{}: {functions} functions", self.kind.title());
        let crates: Vec<_> = self.crates().iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("    by crate: {}", crates.join(", "));
        println!(
            "    not counted: {getters} getters of one expression, {generated} functions that macros generate"
        );
        let idle = self.idle.number(Class::Function);
        if idle > 0 {
            println!(
                "    {idle} functions also run without a request; they count if the request has its own calls of them"
            );
        }
        println!("    store calls: {}", store_line(&store_calls(&self.recordings)));
        if let Some(first) = &self.first {
            println!(
                "    store calls of the first request after a start: {}",
                store_line(&store_calls([first]))
            );
        }
        for (name, cost) in self.costs() {
            println!("    {name}: {}", each(&cost));
        }
        for entry in self.coders() {
            println!("    encoded or decoded: {} {}", entry.calls(), entry.called.name);
        }
        if list {
            for entry in self.entries() {
                println!("{}", entry.line());
            }
        }
        println!();
    }

    /// The costs of each recording, by name.
    fn costs(&self) -> [(&'static str, Vec<u64>); 4] {
        let of =
            |cost: fn(&Costs) -> u64| self.recordings.iter().map(|counted| cost(&counted.costs)).collect();
        [
            ("instructions", of(|costs| costs.instructions)),
            ("allocations", of(|costs| costs.allocations)),
            ("steps of SQL statements", of(|costs| costs.statement_steps)),
            ("bytes written", of(|costs| costs.written_bytes)),
        ]
    }

    fn to_json(&self) -> Value {
        json!({
            "request": self.kind.to_possible_value().map(|value| value.get_name().to_owned()),
            "functions": self.numbers(Class::Function),
            "getters": self.numbers(Class::Getter),
            "generated": self.numbers(Class::Generated),
            "crates": self.crates(),
            "costs": self.costs().into_iter().collect::<BTreeMap<_, _>>(),
            "store_calls": store_json(store_calls(&self.recordings)),
            "store_calls_of_first": self.first.as_ref().map(|first| store_json(store_calls([first]))),
            "idle": self.idle.functions.values().map(|called| &called.name).collect::<Vec<_>>(),
            "list": self.entries().iter().map(Entry::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Calls of each store's functions, in each recording.
fn store_calls<'a>(
    recordings: impl IntoIterator<Item = &'a FunctionCounts> + Clone,
) -> BTreeMap<(String, String), Vec<u64>> {
    let mut calls: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    for name in recordings.clone().into_iter().flat_map(|counted| counted.store_calls.keys()) {
        let of = |counted: &FunctionCounts| counted.store_calls.get(name).copied().unwrap_or(0);
        calls.entry(name.clone()).or_insert_with(|| recordings.clone().into_iter().map(of).collect());
    }
    calls
}

/// The calls of stores as one line.
fn store_line(calls: &BTreeMap<(String, String), Vec<u64>>) -> String {
    let call = |((store, function), calls): (&(String, String), &Vec<u64>)| {
        format!("{store}::{function} {}", each(calls))
    };
    if calls.is_empty() { "none".to_owned() } else { calls.iter().map(call).collect::<Vec<_>>().join(", ") }
}

/// The calls of stores as JSON: functions by store.
fn store_json(calls: BTreeMap<(String, String), Vec<u64>>) -> Value {
    let mut stores: BTreeMap<String, BTreeMap<String, Vec<u64>>> = BTreeMap::new();
    for ((store, function), calls) in calls {
        stores.entry(store).or_default().insert(function, calls);
    }
    json!(stores)
}

/// The result as JSON.
pub(super) fn to_json(program: &Path, reports: &[Report]) -> Value {
    json!({ "program": program, "requests": reports.iter().map(Report::to_json).collect::<Vec<_>>() })
}

/// One number if all recordings have the same, otherwise the numbers of all recordings.
fn each<N: PartialEq + ToString>(numbers: &[N]) -> String {
    match numbers {
        [first, rest @ ..] if rest.iter().all(|number| number == first) => first.to_string(),
        _ => numbers.iter().map(N::to_string).collect::<Vec<_>>().join("/"),
    }
}

impl Entry<'_> {
    fn calls(&self) -> String {
        let text = |calls: &Option<u64>| calls.map_or("-".to_owned(), |calls| calls.to_string());
        each(&self.calls.iter().map(text).collect::<Vec<_>>())
    }

    fn line(&self) -> String {
        let CalledFunction { name, class, .. } = self.called;
        let mark = if *class == Class::Function { "" } else { class.name() };
        let place = match self.key {
            Key::Source { file, line } => format!("  {file}:{line}"),
            Key::Symbol(_) => String::new(),
        };
        format!("    {mark:9} {:>5}  {name}{place}", self.calls())
    }

    fn to_json(&self) -> Value {
        let CalledFunction { name, krate, class, .. } = self.called;
        let (file, line) = match self.key {
            Key::Source { file, line } => (Some(file), Some(line)),
            Key::Symbol(_) => (None, None),
        };
        json!({
            "name": name,
            "crate": krate,
            "class": class.name(),
            "file": file,
            "line": line,
            "calls": self.calls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_printed_once() {
        assert_eq!(each(&[3, 3, 3]), "3");
        assert_eq!(each(&[3, 4, 3]), "3/4/3");
    }
}
