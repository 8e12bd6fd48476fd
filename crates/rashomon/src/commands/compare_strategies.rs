//! `rashomon compare-strategies`.

mod text;

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::configuration::{RawSettings, Settings, StoreUrl};
use rashomon_clock::{Clock, ManualClock, SystemClock};
use rashomon_comparison::{
    CONTESTANTS, Contestant, History, Report, StrategyReport, draw, replay, timelines,
};
use rashomon_tables::{Isolated, TableStore};

use self::text::print;
use crate::{
    arguments::CompareStrategiesArguments,
    errors::CommandError,
    exit::Exit,
    logging, output,
    progress::{Progress, ProgressCounts},
    signals::Signals,
    store::{IfMissing, Store, seed},
};

/// Replays a history through every strategy, and reports the costs of each.
pub(crate) async fn run(arguments: CompareStrategiesArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let mut signals = Signals::listen()?;
    tokio::select! {
        done = Box::pin(compare(&arguments)) => done,
        exit = signals.first() => Ok(exit),
    }
}

async fn compare(arguments: &CompareStrategiesArguments) -> Result<Exit, CommandError> {
    [&arguments.json, &arguments.svg].into_iter().flatten().try_for_each(|path| check_writable(path))?;
    let history = History::read(&arguments.input, arguments.pages.map(usize::from)).await?;
    let stores = (0..CONTESTANTS.len()).map(|number| store_of(&arguments.backend, number));
    let stores = stores.collect::<Result<Vec<_>, _>>()?;
    let mut report = Report {
        backend: arguments.backend.to_string().split(':').next().unwrap_or_default().to_owned(),
        pages: history.pages(),
        edits: history.edits(),
        bytes: history.bytes(),
        strategies: Vec::new(),
        timelines: Vec::new(),
    };
    for (contestant, own) in CONTESTANTS.into_iter().zip(stores) {
        report.strategies.push(replay_on(arguments, own, contestant, &history).await?);
    }
    if arguments.timelines {
        report.timelines =
            timelines(&history, &mut |wiki| output::to_stderr(format_args!("simulating {wiki}")));
    }
    print(&report)?;
    if let Some(path) = &arguments.json {
        write(path, &(serde_json::to_string_pretty(&report).expect("counts are JSON") + "\n"))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &draw(&report))?;
    }
    Ok(Exit::Done)
}

async fn replay_on(
    arguments: &CompareStrategiesArguments,
    store: StoreUrl,
    contestant: Contestant,
    history: &History,
) -> Result<StrategyReport, CommandError> {
    let clock = Arc::new(ManualClock::new(history.begins()));
    let shared = matches!(store, StoreUrl::Cassandra(_));
    let raw = RawSettings { store: Some(store), ..RawSettings::default() };
    let mut settings = Settings::load_offline(raw, arguments.config.as_deref())?;
    // Only the tables of this store are used: the replay opens buckets of its own on them, which have no archive.
    settings.new_store_archive = Some(false);
    let opened = Store::open(&settings, Arc::clone(&clock) as Arc<dyn Clock>, IfMissing::Create).await?;
    let tables: Arc<dyn TableStore> = match shared {
        // The keyspace may have other tables, such as those of the previous strategy.
        true => Arc::new(Isolated::new(opened.tables(), seed()?)),
        false => opened.tables(),
    };
    let watch: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut progress = Progress::new(watch, contestant.name.to_owned(), "edit", None);
    let mut show = |items| progress.show(ProgressCounts { items, bytes: 0, position: 0 });
    let report = replay(contestant, history, clock, tables, &mut show).await;
    progress.finish();
    opened.close().await;
    Ok(report?)
}

/// Returns the store of one strategy. With SQLite, this is a new directory in the directory of the backend.
fn store_of(backend: &StoreUrl, number: usize) -> Result<StoreUrl, CommandError> {
    let StoreUrl::Sqlite(directory) = backend else { return Ok(backend.clone()) };
    let own: PathBuf = directory.join(number.to_string());
    if own.exists() {
        let what = format!("{} already exists: name a directory that does not exist", directory.display());
        return Err(CommandError::Usage(what));
    }
    std::fs::create_dir_all(directory).map_err(|source| CommandError::Io {
        doing: format!("cannot create {}", directory.display()),
        source,
    })?;
    Ok(StoreUrl::Sqlite(own))
}

/// Checks that a file can be written, since the measurement may take hours. Does not change the file.
fn check_writable(path: &Path) -> Result<(), CommandError> {
    let is_new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    match opened.and_then(|_| if is_new { std::fs::remove_file(path) } else { Ok(()) }) {
        Ok(()) => Ok(()),
        Err(error) => Err(CommandError::Usage(format!(
            "cannot write {}: {error}: name a file in an existing directory in which you may write",
            path.display()
        ))),
    }
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text)
        .map_err(|source| CommandError::Io { doing: format!("cannot write {}", path.display()), source })
}
