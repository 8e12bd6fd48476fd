//! Read copies: a read of a superseded render copies the render, so that its reader can read it again within the
//! `ttl`.

use std::{
    collections::{BTreeMap, HashSet},
    num::NonZeroUsize,
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use moka::sync::Cache;
use rashomon_clock::Timestamp;
use rashomon_records::{
    Page, PropertyName, Result, Revision, Tid, Versions,
    content::{Bodies, BodyRow},
    rows::{
        HistoricalKey, Properties, RenderRow, RevisionRow, RowKey, TidRow, TypedRow, of_revision,
        partition_of, render_key, rev_key,
    },
    schemas::{HISTORICAL, REVISIONS_BY_TID},
};
use rashomon_tables::{Batch, ClusteringRange, Mutation, Row, Scan};

use crate::{
    BodyId, Policy,
    copy_batches::{copy_batches, copy_key, stored_for_copy},
    core::Core,
    current_table::find_row,
};

/// The maximum memory in bytes for the expiries of read copies that this process remembers. The expiry of any other
/// copy is read from the store.
const MAX_REMEMBERED_BYTES: u64 = 32 << 20;

/// The approximate memory of a remembered expiry, in addition to the names of the page and the property.
const ENTRY_OVERHEAD: usize = 256;

/// Rows of `historical` in one result page. The number is small, since each row may have a body of a megabyte.
const HISTORICAL_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// Remembers when read copies expire.
#[derive(Debug)]
pub(crate) struct CopyExpiries(Cache<(Page, Tid, PropertyName), Timestamp>);

impl CopyExpiries {
    pub(crate) fn new() -> Self {
        let weight = |(page, _, name): &(Page, Tid, PropertyName), _: &Timestamp| {
            u32::try_from(page.memory() + name.as_str().len() + ENTRY_OVERHEAD).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(MAX_REMEMBERED_BYTES).weigher(weight).build())
    }

    /// When a copy expires, if this process remembers it.
    fn until(&self, page: &Page, tid: Tid, name: &PropertyName) -> Option<Timestamp> {
        self.0.get(&(page.clone(), tid, name.clone()))
    }
}

/// Keeps a superseded render whose property `name` is being read: copies the whole render, unless the copy of this
/// property, or the render itself, stays readable for another `ttl` anyway. The copy stays readable even if the render
/// is culled. Returns `false` if the property has been culled already.
pub(crate) async fn keep_render(
    core: &Core,
    page: &Page,
    policy: &Policy,
    revision: &RevisionRow,
    tid: Tid,
    name: &PropertyName,
) -> Result<bool> {
    let until = required_expiry(core, policy);
    if core.copies.until(page, tid, name).is_some_and(|copied| copied >= until) {
        return Ok(true);
    }
    let rev = revision.record.rev;
    if let Some(kept) = expiry_of_copy(core, page, rev, tid, name).await?
        && kept >= until
    {
        core.copies.0.insert((page.clone(), tid, name.clone()), kept);
        return Ok(true);
    }
    let Some(render) = core.records.render(page, rev, tid).await? else { return Ok(false) };
    // A value is superseded after it was stored, and stays readable for a `grace` after that. So a value that
    // was stored at most one `grace` before `until` needs no copy.
    let stored_at = render.stored_at.min(revision.stored_at);
    if !policy.strategy.deletes_uncopied() && stored_at.saturating_add(policy.grace) >= until {
        return Ok(true);
    }
    let bodies = readable_bodies(core, page, &render, revision).await?;
    if !bodies.contains_key(name) {
        return Ok(false);
    }
    store_copies(core, page, policy, rev, tid, bodies).await?;
    Ok(true)
}

/// Like [`keep_render`], for the latest render. Used under strategies whose reads copy the latest render, and for
/// generated renders.
pub(crate) async fn keep_latest(
    core: &Core,
    page: &Page,
    policy: &Policy,
    (rev, tid): (Revision, Tid),
    name: &PropertyName,
) -> Result<()> {
    let until = required_expiry(core, policy);
    if core.copies.until(page, tid, name).is_some_and(|copied| copied >= until) {
        return Ok(());
    }
    let Some(revision) = core.records.revision(page, rev).await? else { return Ok(()) };
    keep_render(core, page, policy, &revision, tid, name).await.map(drop)
}

/// The minimum expiry of a copy that is readable for another `ttl`, even by a process whose clock is `skew` ahead
/// of ours.
fn required_expiry(core: &Core, policy: &Policy) -> Timestamp {
    core.records.clock.now().saturating_add(policy.ttl).saturating_add(policy.skew)
}

/// The bodies of a render and of its revision that can still be read. The bodies of a render are culled together.
/// The bodies of its revision may be culled at different times: a property that the revision got later is culled
/// later.
async fn readable_bodies(
    core: &Core,
    page: &Page,
    render: &RenderRow,
    revision: &RevisionRow,
) -> Result<Bodies> {
    let of_render = stored_bodies(core, page, render, &render.properties, Versions::Render).await?;
    let of_revision = stored_bodies(core, page, render, &revision.properties, Versions::Revision).await?;
    Ok(of_render.into_iter().chain(of_revision).collect())
}

/// The bodies of a render, or of a revision. For a render, returns all bodies, or none if any body is missing. For
/// a revision, returns the bodies that are stored.
async fn stored_bodies(
    core: &Core,
    page: &Page,
    render: &RenderRow,
    properties: &Properties,
    versions: Versions,
) -> Result<Bodies> {
    let (rev, tid) = (render.rev, render.tid);
    let mut bodies = Bodies::new();
    for name in properties.keys() {
        let row = match find_row(core, BodyId { page, rev, tid, name, versions }).await? {
            None => copy_row(core, page, rev, tid, name).await?,
            row => row,
        };
        match row {
            Some(row) => drop(bodies.insert(name.clone(), BodyRow::from_row(&row)?)),
            None if versions == Versions::Render => return Ok(Bodies::new()),
            None => {}
        }
    }
    Ok(bodies)
}

/// The mutations that replace the read copies of a property, for a write that replaces the property at `at`. Each
/// copy keeps its expiry.
///
/// With several writers, a copy that has expired by our clock may still be visible by the clock of another
/// process, which would serve, and copy, the stale value. So the mutations also delete the copy of each render that has
/// no visible copy.
pub(crate) async fn replaced_copies(
    core: &Core,
    page: &Page,
    (rev, tid): (Revision, Option<Tid>),
    name: &PropertyName,
    body: &BodyRow,
    at: Timestamp,
) -> Result<Vec<Mutation>> {
    let of_name = |row: Row| match HistoricalKey::read(&row.key)? {
        key if key.property == *name => Some((key.tid, row.written_at, row.expires_at?)),
        _ => None,
    };
    let mut expired = match core.records.is_alone() {
        true => HashSet::new(),
        false => tids(core, page, rev, tid).await?,
    };
    let mut copies = Vec::new();
    for (tid, written_at, until) in picked_copies(core, page, (rev, tid), of_name).await? {
        expired.remove(&tid);
        let stored = stored_for_copy(core, (page, rev), &body.stored, until).await?;
        copies.push(Mutation::Put {
            table: &HISTORICAL,
            clustering: copy_key(rev, tid, name),
            values: BodyRow { info: body.info.clone(), stored }.to_values(),
            // The write time of the new body, or just after that of the existing copy if the copy is later. A
            // later read makes a copy with a later write time, which replaces this copy.
            written_at: at.max(written_at.just_after()),
            expires_at: Some(until),
        });
    }
    // The write time of the deletes is a little more than `skew` before now. So the deletes hide expired copies,
    // but no copy that any process makes from now on.
    let skew = core.records.skew.max(core.settings.greatest_skew()) + Duration::from_micros(1);
    let written_at = core.records.clock.now().saturating_sub(skew);
    copies.extend(expired.into_iter().map(|tid| Mutation::Delete {
        table: &HISTORICAL,
        clustering: copy_key(rev, tid, name),
        written_at,
    }));
    Ok(copies)
}

/// The tids of all renders of a revision, or only `tid` if it is given.
async fn tids(core: &Core, page: &Page, rev: Revision, tid: Option<Tid>) -> Result<HashSet<Tid>> {
    if let Some(tid) = tid {
        return Ok(HashSet::from([tid]));
    }
    let (mut tids, mut after) = (HashSet::new(), None);
    loop {
        let (renders, next) = core.records.renders(page, of_revision(rev), after).await?;
        tids.extend(renders.into_iter().map(|render| render.tid));
        after = next;
        if after.is_none() {
            return Ok(tids);
        }
    }
}

/// Reads the read copies of a render or, without a tid, of all renders of a revision. Returns what `pick` returns
/// for each row.
async fn picked_copies<T: Send>(
    core: &Core,
    page: &Page,
    (rev, tid): (Revision, Option<Tid>),
    pick: impl Fn(Row) -> Option<T> + Send,
) -> Result<Vec<T>> {
    let mut of = rev_key(rev);
    of.extend(tid.map(|tid| tid.as_time_uuid().into()));
    let scan = Scan::new(partition_of(page), HISTORICAL_PAGE_ROWS).range(ClusteringRange::prefix(of));
    let (mut picked, mut rows) = (Vec::new(), core.records.rows(&HISTORICAL, scan));
    while let Some(row) = rows.next().await? {
        picked.extend(pick(row));
    }
    Ok(picked)
}

/// Stores read copies of the bodies of a render. The copies last for twice the `ttl`, or as long as the existing copies
/// if these last longer. So a render that is read often is copied only once per `ttl`.
pub(crate) async fn store_copies(
    core: &Core,
    page: &Page,
    policy: &Policy,
    rev: Revision,
    tid: Tid,
    bodies: Bodies,
) -> Result<()> {
    let now = core.records.clock.now();
    let until = now.saturating_add(policy.ttl).saturating_add(policy.ttl);
    // A process whose clock is ahead may just have replaced a property of the render. This process may have done
    // the same before its clock was corrected. The existing copy of the property then has a write time of up to
    // `skew` from now. A new copy with an earlier write time would be hidden, and the visible copy would expire
    // before the copies of the other properties.
    let times = (now.saturating_add(policy.skew), until);
    let times @ (_, until) = times_after_existing_copies(core, page, (rev, tid), times).await?;
    let mut copies = copy_batches(core, page, policy, (rev, tid), &bodies, times).await?;
    let by_tid = copies.swap_remove(0);
    core.records.store.write(copies, by_tid).await?;
    core.counters.kept_renders.fetch_add(1, Relaxed);
    for name in bodies.into_keys() {
        core.copies.0.insert((page.clone(), tid, name), until);
    }
    Ok(())
}

/// Adjusts the write time and the expiry of new copies of a render to its existing copies. The new copies are
/// written later than the existing copies, and expire no earlier: a reader under a longer `ttl` may return until
/// the existing copies expire.
pub(crate) async fn times_after_existing_copies(
    core: &Core,
    page: &Page,
    (rev, tid): (Revision, Tid),
    (written_at, until): (Timestamp, Timestamp),
) -> Result<(Timestamp, Timestamp)> {
    let times = |copy: Row| Some((copy.written_at, copy.expires_at));
    let existing = picked_copies(core, page, (rev, Some(tid)), times).await?;
    let written_at = existing.iter().map(|(at, _)| at.just_after()).fold(written_at, Ord::max);
    let until = existing.iter().filter_map(|(_, expires_at)| *expires_at).fold(until, Ord::max);
    Ok((written_at, until))
}

/// Stores the row that maps the tid of a generated render to its revision, since such a render has no row in
/// `renders`. The row expires after twice the `ttl`, like copies that are made now.
pub(crate) async fn store_tid(
    core: &Core,
    page: &Page,
    policy: &Policy,
    rev: Revision,
    tid: Tid,
) -> Result<()> {
    let now = core.records.clock.now();
    let mut batch = Batch::new(partition_of(page));
    let expires_at = now.saturating_add(policy.ttl).saturating_add(policy.ttl);
    TidRow { tid, rev }.put_until(&mut batch, now, expires_at);
    Ok(core.records.store.write(Vec::new(), batch).await?)
}

/// Reads the read copy of a property of a render. If reads make copies in the bucket, copies the whole render again if
/// the copy expires before [`required_expiry`], or belongs to another render of the revision.
pub(crate) async fn read_copy(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Tid,
    name: &PropertyName,
) -> Result<Option<BodyRow>> {
    let versions = core.records.definitions.get(name).versions;
    let row = match core.expiring_policy(page).is_some() {
        true => copy_row_of(core, BodyId { page, rev, tid, name, versions }).await?,
        false => copy_row(core, page, rev, tid, name).await?,
    };
    let Some(row) = row else { return Ok(None) };
    if let Some(policy) = core.settings.copying(page) {
        match HistoricalKey::read(&row.key) {
            // The property belongs to the revision, and its copy was made with another render. This render is
            // being read, so it is copied too.
            Some(other) if other.tid != tid => copy_again(core, page, policy, rev, tid).await?,
            _ => refresh(core, page, policy, rev, tid, &row).await?,
        }
    }
    Ok(Some(BodyRow::from_row(&row)?))
}

/// The copy of a property of a render or of a revision. If a property of the revision has no copy with this
/// render, returns the copy with the newest render that has one.
pub(crate) async fn copy_row_of(core: &Core, body: BodyId<'_>) -> Result<Option<Row>> {
    let BodyId { page, rev, tid, name, versions } = body;
    match copy_row(core, page, rev, tid, name).await? {
        None if versions == Versions::Revision => match newest_copied(core, page, rev, name).await? {
            Some(tid) => copy_row(core, page, rev, tid, name).await,
            None => Ok(None),
        },
        row => Ok(row),
    }
}

/// The copy of a property of a render.
pub(crate) async fn copy_row(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Tid,
    name: &PropertyName,
) -> Result<Option<Row>> {
    core.records.get(&HISTORICAL, page, copy_key(rev, tid, name)).await
}

/// Copies the whole render again if `copy`, the copy of one of its properties, expires before
/// [`required_expiry`].
pub(crate) async fn refresh(
    core: &Core,
    page: &Page,
    policy: &Policy,
    rev: Revision,
    tid: Tid,
    copy: &Row,
) -> Result<()> {
    if copy.expires_at.unwrap_or(Timestamp::MAX) >= required_expiry(core, policy) {
        return Ok(());
    }
    copy_again(core, page, policy, rev, tid).await
}

/// Copies a render again: its bodies that have read copies, and those bodies of its revision that can still be read.
async fn copy_again(core: &Core, page: &Page, policy: &Policy, rev: Revision, tid: Tid) -> Result<()> {
    let mut bodies = copied_render(core, page, rev, tid).await?;
    if let Some(revision) = core.records.revision(page, rev).await? {
        let expires = policy.strategy.expires();
        for name in revision.properties.into_keys() {
            if bodies.contains_key(&name) {
                continue;
            }
            let id = BodyId { page, rev, tid, name: &name, versions: Versions::Revision };
            let row = match expires {
                true => copy_row_of(core, id).await?,
                false => find_row(core, id).await?,
            };
            if let Some(row) = row {
                bodies.insert(name, BodyRow::from_row(&row)?);
            }
        }
    }
    // A generated render has no row in `renders`. Only the row that maps its tid names it. This row expires, and
    // is written again with the copies.
    let named = core.records.get(&REVISIONS_BY_TID, page, vec![tid.as_time_uuid().into()]).await?;
    if named.is_some_and(|named| named.expires_at.is_some()) {
        store_tid(core, page, policy, rev, tid).await?;
    }
    store_copies(core, page, policy, rev, tid, bodies).await
}

/// The newest render of a revision that has a read copy of the property. Skips copies of writes that may not have
/// committed.
pub(crate) async fn newest_copied(
    core: &Core,
    page: &Page,
    rev: Revision,
    name: &PropertyName,
) -> Result<Option<Tid>> {
    let policy = core.settings.of(page);
    let writes_make_copies = policy.is_some_and(|policy| policy.strategy.expires());
    let mut range = of_revision(rev);
    loop {
        let Some(row) = core.records.first(&HISTORICAL, page, range.clone()).await? else {
            return Ok(None);
        };
        let tid = HistoricalKey::of(&row)?.tid;
        // A write makes its copies before its commit. So a copy may belong to a write that has not committed
        // yet, or that failed.
        if copy_row(core, page, rev, tid, name).await?.is_some()
            && (!writes_make_copies || core.records.has_tid(page, tid).await?)
        {
            return Ok(Some(tid));
        }
        range = range.below(tid.as_time_uuid());
    }
}

/// When the copy of a property expires. `None` if there is no copy: for example, the revision got the property
/// after the render was copied.
async fn expiry_of_copy(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Tid,
    name: &PropertyName,
) -> Result<Option<Timestamp>> {
    Ok(copy_row(core, page, rev, tid, name).await?.and_then(|row| row.expires_at))
}

/// The properties of a generated render that has no row in `renders`. Such a render was generated for a reader of
/// a superseded revision, and exists only as read copies. `None` if there are no copies.
pub(crate) async fn generated_render(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Tid,
) -> Result<Option<Properties>> {
    let bodies = copied_render(core, page, rev, tid).await?;
    let infos: Properties = bodies.into_iter().map(|(name, body)| (name, body.info)).collect();
    Ok((!infos.is_empty()).then_some(infos))
}

/// The bodies of a render that have read copies.
async fn copied_render(core: &Core, page: &Page, rev: Revision, tid: Tid) -> Result<Bodies> {
    let mut bodies = BTreeMap::new();
    let range = ClusteringRange::prefix(render_key(rev, tid));
    let mut rows =
        core.records.rows(&HISTORICAL, Scan::new(partition_of(page), HISTORICAL_PAGE_ROWS).range(range));
    while let Some(row) = rows.next().await? {
        bodies.insert(HistoricalKey::of(&row)?.property, BodyRow::from_row(&row)?);
    }
    Ok(bodies)
}
