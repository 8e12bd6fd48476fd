//! `rashomon archive` is killed before each of its writes, while a server of the cluster serves reads. No
//! readable revision is lost, and the next command completes the interrupted work.

use std::{
    cell::{Cell, RefCell},
    ops::RangeBounds,
};

use serde_json::Value;

use crate::{
    cluster::until,
    home::Home,
    http::{get, post},
    killing::KillingProxy,
    process::{ProcessOutput, RunningProcess, rashomon},
    test_stores::PATIENT,
};

/// The pages. Every block has revisions of each page.
const PAGES: [&str; 2] = ["A", "B"];

/// The number of revisions that one edit adds to each page.
const REVISIONS_PER_EDIT: u64 = 3;

/// The maximum number of kills. All commands here have fewer writes.
const MAX_KILLS: u64 = 30;

/// A written render: its page, its tid, its revision and its properties.
struct Render {
    page: &'static str,
    tid: String,
    rev: u64,
    properties: [(&'static str, String); 2],
}

/// Pages in a store with an archive, which a server reads and writes.
struct Wiki {
    home: Home,
    server: RunningProcess,
    address: String,
    latest: Cell<u64>,
    renders: RefCell<Vec<Render>>,
}

impl Wiki {
    fn new() -> Option<Self> {
        let home = Home::archiving()?;
        let (server, address) = home.serve(&[]);
        until(200, || get(&address, "/readyz"));
        Some(Self { home, server, address, latest: Cell::new(0), renders: RefCell::default() })
    }

    /// Adds some revisions to each page.
    fn edit(&self) {
        let from = self.latest.get() + 1;
        self.latest.set(self.latest.get() + REVISIONS_PER_EDIT);
        for page in PAGES {
            for rev in from..from + REVISIONS_PER_EDIT {
                let properties = ["wikitext", "html"].map(|name| (name, format!("{name}-{page}-{rev}")));
                let [wikitext, html] = &properties;
                let form = format!("_rev={rev}&wikitext={}&html={}", wikitext.1, html.1);
                let written = post(&self.address, &format!("/v1/wiki/page/{page}?rev/"), &form);
                assert!(written.starts_with("HTTP/1.1 201"), "{written}");
                let list = get(&self.address, &format!("/v1/wiki/page/{page}?rev/{rev}/"));
                let list: Value = serde_json::from_str(list.split_once("\r\n\r\n").unwrap().1).unwrap();
                let tid = list["renders"][0]["tid"].as_str().unwrap_or_else(|| panic!("{list}")).to_owned();
                self.renders.borrow_mut().push(Render { page, tid, rev, properties });
            }
        }
    }

    fn archive(&self, words: &[&str]) -> ProcessOutput {
        self.home.run(&[&["archive"], words].concat())
    }

    /// Kills the command after this many writes. Returns `false` if the command ended earlier.
    fn kill(&self, words: &[&str], writes: u64) -> bool {
        let stores = &self.home.stores;
        let proxy = KillingProxy::new(stores.node());
        let url = format!("cassandra://{}/{}?replication=1", proxy.address(), stores.keyspace("data"));
        let mut command = rashomon(self.home.path());
        command.arg("archive").args(words).args(["--store", &url, "--config", PATIENT]);
        let process = RunningProcess::start(command.envs(stores.environment()));
        proxy.kill_after(writes, process.id());
        let ran = process.wait();
        if ran.code.is_some() {
            ran.ends_with(0);
            return false;
        }
        assert!(writes < MAX_KILLS, "the command never stops writing");
        true
    }

    /// Reads all properties of these revisions. A revision whose erasure has begun may be refused, and an
    /// erased revision must be refused.
    fn assert_readable(&self, revs: impl RangeBounds<u64>, erased: &[u64], begun: &[u64]) {
        let renders = self.renders.borrow();
        for Render { page, tid, rev, properties } in renders.iter().filter(|it| revs.contains(&it.rev)) {
            for (name, text) in properties {
                let read = get(&self.address, &format!("/v1/wiki/page/{page}?rev/{tid}/{name}"));
                let is_there =
                    read.starts_with("HTTP/1.1 200 ") && read.ends_with(&format!("\r\n\r\n{text}"));
                let is_erased = read.starts_with("HTTP/1.1 410 ") && !read.contains(text);
                let of = |revs: &[u64]| *page == PAGES[0] && revs.contains(rev);
                let as_expected = if of(erased) { is_erased } else { is_there || of(begun) && is_erased };
                assert!(as_expected, "{page} {rev} {name}: {read}");
            }
        }
    }

    /// Checks the state with the server, and then with a new process.
    fn assert_sound(self, erased: &[u64]) {
        self.assert_readable(.., erased, &[]);
        self.server.stop().ends_with(0);
        self.home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 2 pages"]);
        let exported = self.home.everything();
        for Render { page, rev, properties, .. } in &*self.renders.borrow() {
            let is_erased = *page == PAGES[0] && erased.contains(rev);
            for (_, text) in properties {
                let text = format!("\"{text}\"");
                assert_eq!(exported.contains(&text), !is_erased, "{page} {rev}: {text} in {exported}");
            }
        }
    }
}

#[test]
fn seal_killed_before_any_write_loses_nothing_and_is_completed_by_the_next_seal() {
    let Some(wiki) = Wiki::new() else { return };
    let mut writes = 0;
    loop {
        wiki.edit();
        wiki.home.pass_a_day();
        let was_killed = wiki.kill(&["seal"], writes);
        wiki.assert_readable(.., &[], &[]);
        wiki.archive(&["verify"]).ends_with(0).stdout_contains(&["sound: "]);
        if !was_killed {
            break;
        }
        writes += 1;
    }
    // The writes are a queue entry, the block, a batch for each page, and the deletion of the queue entry.
    assert!(writes >= 5, "{writes} writes");
    wiki.archive(&["stats"]).ends_with(0).stdout_contains(&["; 2 revisions not in blocks"]);
    wiki.assert_sound(&[]);
}

#[test]
fn compaction_killed_before_any_write_loses_nothing_and_is_completed_by_the_next_compaction() {
    let Some(wiki) = Wiki::new() else { return };
    wiki.edit();
    wiki.home.seal().ends_with(0);
    let mut writes = 0;
    loop {
        wiki.edit();
        wiki.home.seal().ends_with(0);
        let was_killed = wiki.kill(&["merge"], writes);
        wiki.assert_readable(.., &[], &[]);
        wiki.archive(&["verify"]).ends_with(0).stdout_contains(&["sound: "]);
        if !was_killed {
            break;
        }
        // Completes the compaction. Otherwise each round would have more blocks to compact, and more writes.
        wiki.archive(&["merge"]).ends_with(0);
        writes += 1;
    }
    assert!(writes >= 5, "{writes} writes");
    wiki.home.pass_late_writes();
    wiki.archive(&["merge", "--trust-clock"])
        .ends_with(0)
        .stdout_contains(&["that no page references any more"]);
    wiki.archive(&["stats"]).ends_with(0).stdout_contains(&[" in 1 block, "]);
    wiki.assert_sound(&[]);
}

#[test]
fn erasure_killed_before_any_write_is_completed_by_the_same_command() {
    let Some(wiki) = Wiki::new() else { return };
    (0..12).for_each(|_| wiki.edit());
    wiki.home.seal().ends_with(0);
    let erase = ["erase", "--trust-clock", "--domain", "wiki", "--title", PAGES[0], "--rev"];
    let mut begun = Vec::new();
    loop {
        // A killed process holds the page lease for some minutes, and its last batch may take effect days
        // later.
        wiki.home.pass_late_writes();
        let writes = begun.len() as u64;
        let rev = writes + 1;
        begun.push(rev);
        let was_killed = wiki.kill(&[&erase[..], &[&rev.to_string()]].concat(), writes);
        let erased = [rev];
        // Reads this revision, and the revisions before and after it.
        wiki.assert_readable(rev.saturating_sub(2)..=rev + 2, if was_killed { &[] } else { &erased }, &begun);
        if !was_killed {
            break;
        }
    }
    assert!(begun.len() > 8, "{begun:?}");
    let status = wiki.archive(&["erase", "--status"]).ends_with(1);
    // One command was killed before it recorded its erasure, and the last command was not killed.
    assert!(status.stdout.matches("NOT DONE: run the command again").count() >= 5, "{status:?}");
    let revs: Vec<String> = begun.iter().map(|rev| format!("--rev={rev}")).collect();
    let revs: Vec<&str> = revs.iter().map(String::as_str).collect();
    wiki.home.pass_late_writes();
    wiki.archive(&[&erase[..6], &revs].concat()).ends_with(0);
    wiki.archive(&["erase", "--status"]).ends_with(0).stdout_contains(&["deleted; "]);
    wiki.assert_sound(&begun);
}
