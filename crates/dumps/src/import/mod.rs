//! `import`: reads a whole history.
//!
//! A thread reads and parses the input. It sends groups of revisions of one page through a bounded channel.
//! Each group becomes a task. The task hashes and compresses its bodies concurrently with other groups. It
//! then waits for the previous group of the same page, and stores its group. So the revisions of a page are
//! stored in their order, and everything else happens concurrently. An import into blocks stores the groups
//! of all pages in their order, since pages share blocks. The bytes between parsing and storing are bounded.
//!
//! From the first page on that comes a second time, the thread sorts what it reads by page: see [`sorter`].

mod beginning;
mod check;
mod feed;
mod report;
mod rows;
mod size;
mod sorter;
mod store;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rashomon_pages::{
    BucketName, Catalog, Definitions, DomainName, PageInfo, PropertyName, Revision, RevisionStore, SiteInfo,
    Title,
};
use tokio::{sync::mpsc, task::JoinSet};

pub use self::beginning::check_beginning;
pub use self::report::{Conflict, ImportError, ImportFailure, ImportProgress, ImportReport, Mismatch};
use self::{
    feed::{Feed, Group, Item},
    sorter::Sorter,
    store::{Importer, PreviousTask, TaskResult},
};
#[cfg(doc)]
use crate::LeftOutReason;
use crate::{ReadLimits, Source, compression::DecompressionLimits};

/// The maximum number of parsed groups that wait in the channel.
const MAX_QUEUED_GROUPS: usize = 4;
/// The maximum number of groups that are being stored at the same time, for each job. Such groups mostly wait for the
/// disk.
const MAX_GROUPS_PER_JOB: usize = 8;

/// The number of pages whose metadata is stored together. Each by itself would need a commit.
const MAX_WAITING_INFOS: usize = 64;

/// The default limit of the bytes of bodies between parsing and storing.
const MAX_BUFFERED_BYTES: u32 = 24 << 20;

/// How to import.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The bucket of the pages, with its id.
    pub bucket: BucketName,
    /// How many groups of revisions are hashed and compressed at the same time; at least 1.
    pub jobs: usize,
    /// The limits of decompression.
    pub decompression: DecompressionLimits,
    /// The maximum size of a line of JSON lines, in bytes.
    pub max_line: usize,
    /// The limit of the bytes of bodies between parsing and storing. A larger revision is processed alone. Bodies that
    /// are ready to be stored need the same memory a second time, and a third time while the store writes them.
    pub max_buffered_bytes: u32,
    /// Whether revisions are put into blocks as they come, if the archive is on. Nothing else may write to their pages.
    pub archive: bool,
    /// Whether revisions that are stored as rows are sealed soon after that, if the archive is on and no other process
    /// writes to the store. Together with `archive`, parts of pages are merged at the end, and this process may do
    /// nothing else meanwhile.
    pub seal_rows: bool,
    /// Whether pages that cannot be read are reported and skipped. Otherwise, such a page ends the import.
    pub skip_broken: bool,
}

impl Default for ImportOptions {
    /// Into the bucket `page`, with as many jobs as there are processors.
    fn default() -> Self {
        Self {
            bucket: BucketName::page(),
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            decompression: DecompressionLimits::default(),
            max_line: ReadLimits::default().line,
            max_buffered_bytes: MAX_BUFFERED_BYTES,
            archive: false,
            seal_rows: false,
            skip_broken: false,
        }
    }
}

/// Imports a history into the pages of a bucket, and returns a report.
///
/// `progress` is called whenever a group of revisions, the metadata of a page or the metadata of the wiki is
/// stored: up to some hundred times a second. Must be called within a runtime of tokio; the parser runs on one
/// of its blocking threads. Stored revisions and renders are not changed, and missing ones are added. So an
/// import may be repeated, and a repeated import continues where the earlier one stopped. Newer metadata of a page
/// or of the wiki replaces the stored metadata.
///
/// Impossible revisions, and revisions that could not be read back unchanged, are left out and listed: see
/// [`LeftOutReason`]. Examples are a revision that is its own parent, and a revision whose time is more than `skew`
/// after the start of the import. All other revisions are stored, even strange ones.
///
/// If the input is truncated or damaged, or if the store fails, an error is returned. The error contains the
/// report of the work done. If the input is at fault, all complete revisions before the error are stored.
pub async fn import(
    buckets: &RevisionStore,
    catalog: &Catalog,
    domain: &DomainName,
    source: Source,
    options: &ImportOptions,
    mut progress: impl FnMut(&ImportProgress) + Send,
) -> Result<ImportReport, ImportError> {
    let mut import = Import::new(buckets, catalog, domain, options);
    let read = import.read(source, &mut progress).await;
    let failure = match read {
        Ok(()) | Err(ImportFailure::Read(_)) => {
            // An error of the store takes precedence over one of the input.
            import.finish(&mut progress).await.and(read).err()
        }
        Err(failure) => Some(failure),
    };
    let mut report = ImportReport::default();
    import.take_reports().into_iter().for_each(|of_file| report.add(of_file));
    match failure {
        None => Ok(report),
        Some(failure) => Err(ImportError { failure, report: Box::new(report) }),
    }
}

/// An import of several files, which may have parts of the same pages.
pub struct Import<'a> {
    buckets: &'a RevisionStore,
    catalog: &'a Catalog,
    domain: &'a DomainName,
    options: &'a ImportOptions,
    /// `None` only while the parser has it.
    sorter: Option<Sorter>,
    /// The report of each file, since the reports were taken.
    reports: Vec<ImportReport>,
}

impl<'a> Import<'a> {
    /// Creates an import, with nothing read yet.
    #[must_use]
    pub fn new(
        buckets: &'a RevisionStore,
        catalog: &'a Catalog,
        domain: &'a DomainName,
        options: &'a ImportOptions,
    ) -> Self {
        Self { buckets, catalog, domain, options, sorter: None, reports: Vec::new() }
    }

    /// Imports the next file, as [`import`] does. If pages come in several parts, some revisions wait in a temporary
    /// file until [`Self::finish`], which must be called even after an error of the input.
    pub async fn read(
        &mut self,
        source: Source,
        progress: &mut (impl FnMut(&ImportProgress) + Send),
    ) -> Result<(), ImportFailure> {
        self.reports.push(ImportReport::default());
        self.work(Some(source), progress).await
    }

    /// Stores the revisions that wait, and deletes the blocks that the import has replaced.
    pub async fn finish(
        &mut self,
        progress: &mut (impl FnMut(&ImportProgress) + Send),
    ) -> Result<(), ImportFailure> {
        match &self.sorter {
            Some(sorter) if sorter.waiting() > 0 => self.work(None, progress).await,
            _ => self.importer().merge_parts().await,
        }
    }

    fn importer(&self) -> Importer {
        Importer::new(self.buckets.clone(), self.catalog.clone(), self.domain.clone(), self.options)
    }

    /// Takes the reports of the files so far, in their order. A later call returns what was done since then.
    pub fn take_reports(&mut self) -> Vec<ImportReport> {
        self.reports.iter_mut().map(std::mem::take).collect()
    }

    async fn work(
        &mut self,
        source: Option<Source>,
        progress: &mut (impl FnMut(&ImportProgress) + Send),
    ) -> Result<(), ImportFailure> {
        let Self { buckets, options, .. } = *self;
        let (size, consumed) = match &source {
            Some(source) => (source.size(), source.consumed()),
            None => (None, Arc::default()),
        };
        let (sender, mut items) = mpsc::channel(MAX_QUEUED_GROUPS);
        let definitions = buckets.settings().definitions.clone();
        // The reader accepts texts up to the default limit even if the definition allows less. So a text above
        // the limit of its definition is left out, and does not end the import.
        let text = definitions.get(&PropertyName::wikitext()).max_size.max(Definitions::DEFAULT_MAX_SIZE);
        let limits = ReadLimits {
            text: usize::try_from(text).unwrap_or(usize::MAX),
            line: options.max_line,
            latest: buckets.latest_time(),
            skip_broken: options.skip_broken,
        };
        let (decompression, max_buffered_bytes) = (options.decompression.clone(), options.max_buffered_bytes);
        let file = self.reports.len().saturating_sub(1);
        let is_last = source.is_none();
        let sorter = self.sorter.take();
        let sorter = sorter.unwrap_or_else(|| Sorter::new(Arc::clone(&options.decompression.spool)));
        let parser = tokio::task::spawn_blocking(move || {
            let feed = Feed::new(sender, definitions, max_buffered_bytes, file, sorter);
            match source {
                Some(source) => feed.run(source, &decompression, limits),
                None => feed.run_sorter(),
            }
        });

        let importer = Arc::new(self.importer());
        let mut run = ImportRun {
            importer,
            size,
            consumed,
            file,
            reports: std::mem::take(&mut self.reports),
            waiting: 0,
            tasks: JoinSet::new(),
            site: None,
            highest: None,
            last: HashMap::new(),
            next: 0,
            infos: Vec::new(),
        };
        let limit = options.jobs.max(1) * MAX_GROUPS_PER_JOB;
        let mut done = Ok(());
        while done.is_ok() {
            tokio::select! {
                item = items.recv(), if run.tasks.len() < limit => match item {
                    Some(item) => run.start_task(item, progress),
                    None => break,
                },
                Some(finished) = run.tasks.join_next() => done = run.finish(finished, progress),
            }
        }
        // The parser stops when the receiver is dropped.
        drop(items);
        run.store_infos();
        while let Some(finished) = run.tasks.join_next().await {
            done = done.and(run.finish(finished, progress));
        }
        let parsed = match parser.await {
            Ok((sorter, parsed)) => {
                self.sorter = Some(sorter);
                parsed
            }
            Err(error) => Err(ImportFailure::Interrupted(error.to_string())),
        };
        let mut sealed = run.importer.finish(&mut run.reports[file]).await;
        if is_last && sealed.is_ok() {
            sealed = run.importer.merge_parts().await;
        }
        if done.is_ok() {
            done = run.finish_site().await;
        }
        self.reports = run.reports;
        // An error of the store takes precedence: it may be the reason why the parser stopped.
        done.and(sealed).and(parsed)
    }
}

/// An import in progress.
struct ImportRun {
    importer: Arc<Importer>,
    size: Option<u64>,
    consumed: Arc<AtomicU64>,
    /// The number of the file that is read.
    file: usize,
    /// The reports of all files so far.
    reports: Vec<ImportReport>,
    /// The number of revisions that wait to be sorted by page.
    waiting: u64,
    tasks: JoinSet<Result<TaskResult, ImportFailure>>,
    /// The metadata of the wiki in the input.
    site: Option<SiteInfo>,
    /// The highest revision of the pages with metadata.
    highest: Option<Revision>,
    /// The last running task of each page. In an import into blocks, the last running task of all pages.
    last: HashMap<Option<Title>, (u64, PreviousTask)>,
    next: u64,
    /// The metadata of pages that waits to be stored.
    infos: Vec<(Title, PageInfo)>,
}

impl ImportRun {
    /// Starts the task for an item, or counts the item.
    fn start_task(&mut self, item: Item, progress: &mut impl FnMut(&ImportProgress)) {
        let file = self.file;
        let report = &mut self.reports[file];
        match item {
            Item::Site(info) => {
                let info = SiteInfo { as_of: None, ..info };
                self.site = Some(info.clone());
                let importer = Arc::clone(&self.importer);
                self.tasks.spawn(async move {
                    // Differences are reported at the end, when it is known how old the input is.
                    importer.store_site(&info).await.map(|_| TaskResult::default())
                });
            }
            Item::Group(group) => {
                let (title, number) = (group.title.clone(), self.next_number());
                let (previous, done) = self.register_task(&title, number);
                let importer = Arc::clone(&self.importer);
                self.tasks.spawn(async move {
                    let Group { title, revisions, file, memory: _memory } = group;
                    let mut stored = importer.store_revisions(&title, revisions, previous).await?;
                    stored.page = Some((title, number));
                    stored.file = Some(file);
                    drop(done);
                    Ok(stored)
                });
            }
            Item::NewPage => report.pages += 1,
            Item::Highest(rev) => self.highest = self.highest.max(Some(rev)),
            Item::PageInfo(title, info) => {
                self.infos.push((title, info));
                if self.infos.len() >= MAX_WAITING_INFOS {
                    self.store_infos();
                }
            }
            Item::LeftOut(left_out) => report.left_out.add_many(left_out.revisions, left_out),
            Item::Misplaced(misplaced) => report.misplaced.add(misplaced),
            Item::Broken(broken) => report.broken.add(broken),
            Item::Notice(notice) => report.notices.add(notice),
            Item::Skipped(name) => report.skip(name),
            Item::Repeated(file) => self.reports[file].unchanged += 1,
            Item::Waiting(waiting) => {
                self.waiting = waiting;
                self.show_progress(progress);
            }
        }
    }

    /// Starts the task that stores the metadata of the pages that wait.
    fn store_infos(&mut self) {
        let infos = std::mem::take(&mut self.infos);
        if !infos.is_empty() {
            let importer = Arc::clone(&self.importer);
            self.tasks.spawn(async move { importer.store_pages(infos).await });
        }
    }

    /// Stores the metadata of the wiki, with the highest revision of the input.
    async fn finish_site(&mut self) -> Result<(), ImportFailure> {
        let Some(mut site) = self.site.take() else { return Ok(()) };
        site.as_of = self.highest;
        let stored = self.importer.store_site(&site).await?;
        self.reports[self.file].add(stored.report);
        Ok(())
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Registers a new task. Returns the earlier task that the new task must wait for, if any, and the sender that the
    /// new task drops when it is done.
    fn register_task(
        &mut self,
        title: &Title,
        number: u64,
    ) -> (Option<PreviousTask>, tokio::sync::oneshot::Sender<()>) {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let previous = self.last.insert(self.importer.queue_of(title), (number, receiver));
        (previous.map(|(_, previous)| previous), sender)
    }

    fn finish(
        &mut self,
        finished: Result<Result<TaskResult, ImportFailure>, tokio::task::JoinError>,
        progress: &mut impl FnMut(&ImportProgress),
    ) -> Result<(), ImportFailure> {
        let stored = finished.map_err(|error| ImportFailure::Interrupted(error.to_string()))??;
        if let Some((title, number)) = &stored.page {
            let queue = self.importer.queue_of(title);
            if self.last.get(&queue).is_some_and(|(last, _)| last == number) {
                self.last.remove(&queue);
            }
        }
        self.reports[stored.file.unwrap_or(self.file)].add(stored.report);
        self.show_progress(progress);
        Ok(())
    }

    fn show_progress(&self, progress: &mut impl FnMut(&ImportProgress)) {
        let reports = &self.reports;
        progress(&ImportProgress {
            pages: reports.iter().map(|report| report.pages).sum(),
            revisions: self.waiting + reports.iter().map(ImportReport::revisions).sum::<u64>(),
            text_bytes: reports.iter().map(|report| report.text_bytes).sum(),
            read: self.consumed.load(Ordering::Relaxed),
            size: self.size,
        });
    }
}
