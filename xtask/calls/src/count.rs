//! The project's functions in a profile.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use super::{
    callgrind::{Call, Function, Profile},
    functions::{SourceFunction, find, functions},
    symbol::{crate_of, is_closure, last_segment, simplify, type_and_trait},
};

/// The beginning of the names of this project's crates.
const CRATE_PREFIX: &str = "rashomon";

/// The identity of a function: its position in the sources, or else its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Source { file: String, line: usize },
    Symbol(String),
}

/// The class of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A function that is counted.
    Function,
    /// A function that takes `self`, has one expression as its body, and calls no function of the class
    /// [`Class::Function`].
    Getter,
    /// Code of a derive or another macro, which is not visible in the sources as a function.
    Generated,
}

/// A function of this project that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CalledFunction {
    pub(super) name: String,
    /// The folder of its crate in `crates`.
    pub(super) krate: String,
    pub(super) class: Class,
    /// The number of calls of the function itself. Runs of its closures, and of its body if it is `async`,
    /// are not calls.
    pub(super) calls: u64,
}

/// The functions of this project that ran during a recording.
#[derive(Debug, Default)]
pub(super) struct FunctionCounts {
    pub(super) functions: BTreeMap<Key, CalledFunction>,
    /// The names of callers, and the functions of this project that they called.
    edges: BTreeSet<(String, Key)>,
    /// Calls of the functions of `TableStore`, by the type of the store and the name of the function. All
    /// decorators share one function, and a call may pass several of them.
    pub(super) store_calls: BTreeMap<(String, String), u64>,
    pub(super) costs: Costs,
}

/// The costs of a recording, including functions of libraries and of the system.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) instructions: u64,
    /// Calls of the functions that allocate memory.
    pub(super) allocations: u64,
    /// Steps of SQL statements. A step returns a row, or ends the statement.
    pub(super) statement_steps: u64,
    /// The bytes that the process passed to the system: files, and the answer.
    pub(super) written_bytes: u64,
}

/// The functions that allocate memory.
const ALLOCATORS: &[&str] = &["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

impl Costs {
    fn of(profile: &Profile) -> Self {
        let calls_of = |names: &[&str]| -> u64 {
            let is_called = |call: &&Call| {
                let symbol = &profile.functions[call.callee].symbol;
                // A recursive call has a number: `malloc'2`.
                names.contains(&symbol.split('\'').next().unwrap_or_default())
            };
            profile.calls.iter().filter(is_called).map(|call| call.count).sum()
        };
        Self {
            instructions: profile.instructions,
            allocations: calls_of(ALLOCATORS),
            statement_steps: calls_of(&["sqlite3_step"]),
            written_bytes: profile.written_bytes,
        }
    }
}

/// The functions in the source files, which are read on demand.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The folder of the sources. `None`: the files are in the folder where the program was built.
    root: Option<PathBuf>,
    files: HashMap<String, Option<Vec<SourceFunction>>>,
    /// Functions that were found, by name. A recording may contain too few lines of a function to find it.
    found: HashMap<String, ProjectFunction>,
}

impl Sources {
    pub(super) fn new(root: Option<&Path>) -> Self {
        Self { root: root.map(Path::to_owned), ..Self::default() }
    }

    /// The functions of a file. `file` is its path in the program, and `from_root` its path from the root.
    /// `None`: there is no such file.
    fn functions(&mut self, file: &str, from_root: &str) -> Option<&[SourceFunction]> {
        if !self.files.contains_key(file) {
            let path = self.root.as_ref().map_or_else(|| file.into(), |root| root.join(from_root));
            let found = fs::read_to_string(path).ok().map(|source| functions(&source));
            self.files.insert(file.to_owned(), found);
        }
        self.files[file].as_deref()
    }

    /// The function of the same name in another recording, if the position of this one is unknown.
    fn known<'f>(&'f self, function: &'f ProjectFunction) -> &'f ProjectFunction {
        match &function.key {
            Key::Source { .. } => function,
            Key::Symbol(name) => self.found.get(name).unwrap_or(function),
        }
    }

    /// The files of the program that were not found.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter(|(_, found)| found.is_none()).map(|(file, _)| file.as_str())
    }
}

/// The path from the root of the sources, if the file belongs to this project.
fn from_root(file: &str) -> Option<&str> {
    // The standard library also has a folder of this name.
    if file.starts_with("/rustc/") || file.contains("/lib/rustlib/") {
        return None;
    }
    let at = if file.starts_with("crates/") { 0 } else { file.rfind("/crates/")? + 1 };
    let path = &file[at..];
    (path.split('/').nth(2) == Some("src")).then_some(path)
}

/// A function of this project in a profile.
#[derive(Debug, Clone)]
struct ProjectFunction {
    key: Key,
    name: String,
    krate: String,
    class: Class,
}

/// Finds the functions of this project in a profile.
pub(super) fn count(profile: &Profile, sources: &mut Sources) -> FunctionCounts {
    let functions: Vec<Option<ProjectFunction>> =
        profile.functions.iter().map(|function| identify(function, sources)).collect();
    let functions: Vec<Option<&ProjectFunction>> =
        functions.iter().map(|found| found.as_ref().map(|found| sources.known(found))).collect();

    let mut counted = FunctionCounts { costs: Costs::of(profile), ..FunctionCounts::default() };
    for found in functions.iter().flatten() {
        let ProjectFunction { name, krate, class, .. } = found;
        let called = CalledFunction { name: name.clone(), krate: krate.clone(), class: *class, calls: 0 };
        let known = counted.functions.entry(found.key.clone()).or_insert_with(|| called.clone());
        // A function of a trait runs for several types. Any name would do; the first name in order is taken.
        if called.name < known.name {
            known.name = called.name;
        }
    }

    let mut callees: BTreeMap<&Key, BTreeSet<&Key>> = BTreeMap::new();
    for call in &profile.calls {
        let (caller, Some(callee)) = (functions[call.caller], functions[call.callee]) else { continue };
        let symbol = &profile.functions[call.callee].symbol;
        if !is_closure(symbol) {
            counted.functions.entry(callee.key.clone()).and_modify(|called| called.calls += call.count);
            if let Some(store) = store_of(&callee.name) {
                *counted.store_calls.entry(store).or_default() += call.count;
            }
        }
        if caller.is_some_and(|caller| caller.key == callee.key) {
            continue;
        }
        counted.edges.insert((simplify(&profile.functions[call.caller].symbol), callee.key.clone()));
        if let Some(caller) = caller {
            callees.entry(&caller.key).or_default().insert(&callee.key);
        }
    }
    keep_getters(&mut counted.functions, &callees);
    counted
}

fn identify(function: &Function, sources: &mut Sources) -> Option<ProjectFunction> {
    let name = simplify(&function.symbol);
    let own_file = from_root(&function.file);
    // The first instruction may be inlined code of another crate. A function of a foreign trait may belong to
    // another crate.
    let by_name = crate_of(&name).filter(|krate| krate.starts_with(CRATE_PREFIX) && !name.starts_with('<'));
    let krate = match (own_file, by_name) {
        (Some(path), _) => folder_of(path).to_owned(),
        (None, Some(krate)) => folder_named(krate),
        (None, None) => return None,
    };

    let mut is_missing = false;
    let files: BTreeSet<&str> = function.lines.iter().map(|(file, _)| &**file).collect();
    // A derive puts its code into a constant without a name.
    for file in files.into_iter().filter(|_| !name.contains("::_::")) {
        let Some(path) = from_root(file) else { continue };
        let Some(functions) = sources.functions(file, path) else {
            is_missing = true;
            continue;
        };
        let lines = function.lines.iter().filter(|(of, _)| **of == *file).map(|(_, line)| *line);
        if let Some(source) = find(functions, lines, last_segment(&name)) {
            let key = Key::Source { file: path.to_owned(), line: source.first };
            let class = if source.is_short { Class::Getter } else { Class::Function };
            let found = ProjectFunction { key, name, krate: folder_of(path).to_owned(), class };
            sources.found.insert(found.name.clone(), found.clone());
            return Some(found);
        }
    }
    let class = if is_missing { Class::Function } else { Class::Generated };
    Some(ProjectFunction { key: Key::Symbol(name.clone()), name, krate, class })
}

/// The folder of the crate of a file.
fn folder_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// The folder of the crate with this name.
fn folder_named(krate: &str) -> String {
    match krate.strip_prefix(CRATE_PREFIX).unwrap_or(krate) {
        "" => "cli".to_owned(),
        rest => rest.trim_start_matches('_').replace('_', "-"),
    }
}

/// Keeps the class [`Class::Getter`] only for functions that call none of the class [`Class::Function`].
fn keep_getters(functions: &mut BTreeMap<Key, CalledFunction>, callees: &BTreeMap<&Key, BTreeSet<&Key>>) {
    loop {
        let counts = |key: &&Key| functions.get(*key).is_some_and(|called| called.class == Class::Function);
        let calls_more = |key: &Key| callees.get(key).is_some_and(|callees| callees.iter().any(counts));
        let longer: Vec<Key> = (functions.iter())
            .filter(|(key, called)| called.class == Class::Getter && calls_more(key))
            .map(|(key, _)| key.clone())
            .collect();
        if longer.is_empty() {
            return;
        }
        for key in longer {
            functions.entry(key).and_modify(|called| called.class = Class::Function);
        }
    }
}

/// The functions of `TableStore` that reach the tables.
const STORE_FUNCTIONS: &[&str] = &["get", "scan", "partitions", "write", "swap"];

/// The type of a store and the function, if this is a function of `TableStore`.
fn store_of(name: &str) -> Option<(String, String)> {
    let (store, its_trait) = type_and_trait(name)?;
    let is_call = last_segment(its_trait) == "TableStore" && STORE_FUNCTIONS.contains(&last_segment(name));
    let store = if store.contains("::") { last_segment(store) } else { "decorators" };
    is_call.then(|| (store.to_owned(), last_segment(name).to_owned()))
}

impl FunctionCounts {
    /// Removes functions that also ran in `idle`, unless they have a caller that they did not have in `idle`.
    pub(super) fn without(mut self, idle: &Self) -> Self {
        let new: BTreeSet<&Key> = self.edges.difference(&idle.edges).map(|(_, callee)| callee).collect();
        self.functions.retain(|key, _| !idle.functions.contains_key(key) || new.contains(key));
        self
    }

    /// The number of functions of a class.
    pub(super) fn number(&self, class: Class) -> usize {
        self.functions.values().filter(|called| called.class == class).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
#[derive(Clone)]
pub struct A(u8);
impl A {
    fn get(&self) -> u8 { self.0 }
    fn through(&self) -> u8 { self.get() }
    fn longer(&self) -> u8 { self.work() }
    fn work(&self) -> u8 {
        let b = || self.get();
        b()
    }
}
impl TableStore for A {
    fn scan(&self) {
        self.work();
    }
}
";

    const ALLOCATING: &str = "\
positions: line
events: Ir
fn=(1) a
1 10
cfn=(2) malloc
calls=3 0
1 30
cfn=(3) malloc'2
calls=1 0
1 10
cfn=(4) sqlite3_step
calls=2 0
1 40
fn=(5) malloc_usable_size
1 1
totals: 91
";

    /// `work` is called by two functions and by its own closure, which runs twice.
    const PROFILE: &str = "\
positions: line
events: Ir
fl=(1) /build/crates/x/src/a.rs
fn=(1) rashomon_x::a::A::get
4 1
fn=(2) rashomon_x::a::A::through
5 1
cfn=(1)
calls=1 4
5 1
fn=(3) rashomon_x::a::A::longer
6 1
cfn=(4) rashomon_x::a::A::work
calls=1 7
6 1
fn=(4)
7 1
cfn=(5) rashomon_x::a::A::work::{{closure}}
calls=2 8
9 1
fn=(5)
8 1
cfn=(1)
calls=1 4
8 1
cfn=(6) rashomon_x::a::A::work'2
calls=1 7
8 1
fn=(6)
7 1
fn=(7) <rashomon_x::a::A as rashomon_tables::store::TableStore>::scan
13 1
cfn=(4)
calls=4 7
14 1
fn=(8) <rashomon_x::a::A as core::clone::Clone>::clone
1 1
fl=(2) /rustc/library/stdarch/crates/core_arch/src/x.rs
fn=(9) core::run
1 1
cfi=(1)
cfn=(7)
calls=3 13
1 1
fn=(10) <rashomon_x::a::A as alloc::string::ToString>::to_string
1 1
";

    /// Counts the functions of each profile, one after the other.
    fn counted<const N: usize>(profiles: [&str; N]) -> [FunctionCounts; N] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("crates/x/src/a.rs");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, SOURCE).unwrap();
        let mut sources = Sources::new(Some(folder.path()));
        profiles.map(|profile| count(&Profile::parse(profile).unwrap(), &mut sources))
    }

    fn found(counted: &FunctionCounts) -> Vec<(&str, Class, u64)> {
        let functions = counted.functions.values();
        functions.map(|called| (called.name.as_str(), called.class, called.calls)).collect()
    }

    #[test]
    fn project_functions_are_counted_by_class() {
        let [counted] = counted([PROFILE]);
        assert_eq!(
            found(&counted),
            [
                ("rashomon_x::a::A::get", Class::Getter, 2),
                ("rashomon_x::a::A::through", Class::Getter, 0),
                ("rashomon_x::a::A::longer", Class::Function, 0),
                ("rashomon_x::a::A::work", Class::Function, 6),
                ("<rashomon_x::a::A as rashomon_tables::store::TableStore>::scan", Class::Function, 3),
                ("<rashomon_x::a::A as core::clone::Clone>::clone", Class::Generated, 0),
            ]
        );
        assert_eq!(counted.number(Class::Function), 3);
        assert!(counted.functions.values().all(|called| called.krate == "x"));
        assert_eq!(counted.store_calls, [(("A".to_owned(), "scan".to_owned()), 3)].into());
    }

    #[test]
    fn functions_that_also_run_without_a_request_are_left_out_unless_others_call_them() {
        let (idle, request) = PROFILE.split_once("fn=(7)").unwrap();
        let head = idle.split_once("fn=(1)").unwrap().0;
        let request = format!("{head}fn=(4) rashomon_x::a::A::work\n7 1\nfn=(7){request}");
        let left = |request: &str| {
            let [idle, request] = counted([idle, request]);
            let left = request.without(&idle);
            found(&left).into_iter().map(|(name, ..)| last_segment(name).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left(&request), ["work", "scan", "clone"]);
        assert_eq!(left(idle), [""; 0]);
    }

    #[test]
    fn functions_without_lines_are_known_from_earlier_recordings() {
        let closure = "events: Ir\nfl=(1) ???\nfn=(1) core::run\n1 1\n\
                       cfn=(2) rashomon_x::a::A::work::{{closure}}\ncalls=1 8\n1 1\n";
        let [first, second] = counted([PROFILE, closure]);
        let key = second.functions.keys().next().unwrap();
        assert_eq!(first.functions[key].name, "rashomon_x::a::A::work");
    }

    #[test]
    fn costs_include_functions_of_libraries() {
        let mut profile = Profile::parse(ALLOCATING).unwrap();
        profile.written_bytes = 7;
        let expected = Costs { instructions: 91, allocations: 4, statement_steps: 2, written_bytes: 7 };
        assert_eq!(Costs::of(&profile), expected);
    }

    #[test]
    fn functions_without_sources_count() {
        let counted = count(&Profile::parse(PROFILE).unwrap(), &mut Sources::new(None));
        assert_eq!(counted.number(Class::Function), 6);
    }
}
