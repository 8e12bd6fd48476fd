//! The registry in use, which can be replaced.

use std::sync::{Arc, PoisonError, RwLock};

use rashomon_client::ReplayMemory;

use super::{
    Destination, Entry, OpenError, Prefix,
    backend::{Backend, BackendHealth},
    upstream::PrefixServers,
};

/// Selects the backend of a path, and forwards requests to it.
#[derive(Debug)]
pub struct Forwarder {
    /// The name of this server in `Via`.
    name: Arc<str>,
    memory: ReplayMemory,
    table: RwLock<Arc<Table>>,
}

/// The entries of a registry.
pub(crate) type Table = Vec<OpenEntry>;

/// A prefix and its open backend.
#[derive(Debug)]
pub(crate) struct OpenEntry {
    pub(crate) prefix: Prefix,
    pub(crate) backend: Backend,
}

impl Forwarder {
    /// Makes a forwarder. All requests together keep at most `replay_bytes` of their bodies in memory, so that the
    /// bodies can be sent again. `seed` must be random, so that no two servers have the same name.
    ///
    /// # Errors
    ///
    /// Returns the prefix of an entry whose settings or files cannot be used, and the reason.
    pub fn open(entries: Vec<Entry>, replay_bytes: usize, seed: u64) -> Result<Self, (Prefix, OpenError)> {
        let this = Self {
            name: format!("rashomon-{seed:016x}").into(),
            memory: ReplayMemory::new(replay_bytes),
            table: RwLock::default(),
        };
        this.replace(entries)?;
        Ok(this)
    }

    /// Replaces the registry. Requests in progress finish at their old backends. Servers with unchanged settings keep
    /// their connections and their state, unless they have a `ca_file`. Reads files, so this may block.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]. The previous registry stays in use then.
    pub fn replace(&self, entries: Vec<Entry>) -> Result<(), (Prefix, OpenError)> {
        let before = self.table();
        let opened: Result<Table, _> =
            entries.into_iter().map(|entry| self.open_entry(entry, &before)).collect();
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened?);
        Ok(())
    }

    fn open_entry(&self, entry: Entry, before: &Table) -> Result<OpenEntry, (Prefix, OpenError)> {
        let Entry { prefix, destination } = entry;
        let backend = match destination {
            Destination::Store(index) => Backend::Store(index),
            Destination::Servers(settings) => {
                // The content of a file with authorities may have changed.
                let is_known = settings.ca_file.is_none();
                let same = before.iter().find_map(|old| match &old.backend {
                    Backend::Servers(servers) if old.prefix == prefix && servers.settings == settings => {
                        Some(Arc::clone(servers))
                    }
                    _ => None,
                });
                let name = Arc::clone(&self.name);
                Backend::Servers(match same.filter(|_| is_known) {
                    Some(servers) => servers,
                    None => match PrefixServers::open(prefix.clone(), settings, name, &self.memory) {
                        Ok(servers) => Arc::new(servers),
                        Err(error) => return Err((prefix, error)),
                    },
                })
            }
        };
        Ok(OpenEntry { prefix, backend })
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of bytes of request bodies that are in memory now, to be sent again if necessary.
    pub(crate) fn replay_bytes(&self) -> usize {
        self.memory.used()
    }

    /// Returns the backend of a path, or `None` for the main store of this server. The path is given as its decoded
    /// parts: the domain, the bucket, and the parts between the slashes of the title or the key.
    pub(crate) fn find(&self, path: &[String]) -> Option<Backend> {
        let table = self.table();
        let matching = table.iter().filter_map(|entry| Some((entry.prefix.matched_parts(path)?, entry)));
        let (_, longest) = matching.max_by_key(|(parts, _)| *parts)?;
        Some(longest.backend.clone())
    }

    /// Counts the backends that are lists of servers, by their last known state. Does not count the other stores.
    pub(crate) fn health(&self) -> BackendHealth {
        let mut health = BackendHealth::default();
        for entry in &*self.table() {
            let Backend::Servers(servers) = &entry.backend else { continue };
            let states = servers.backend.servers();
            let left_out = states.iter().filter(|server| server.is_left_out).count();
            match left_out {
                0 => health.ready += 1,
                all if all == states.len() => health.down += 1,
                _ => health.degraded += 1,
            }
        }
        health
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ServerList;

    fn entry(prefix: &str, destination: Destination) -> Entry {
        Entry { prefix: prefix.parse().unwrap(), destination }
    }

    fn servers(address: &str) -> Destination {
        Destination::Servers(ServerList::new(vec![address.to_owned()]))
    }

    fn selected(forwarder: &Forwarder, path: &str) -> Option<usize> {
        let path: Vec<String> = path.split('/').map(str::to_owned).collect();
        match forwarder.find(&path)? {
            Backend::Store(index) => Some(index),
            Backend::Servers(_) => Some(99),
        }
    }

    #[test]
    fn longest_prefix_wins_and_other_paths_go_to_the_main_store() {
        let entries = vec![
            entry("/enwiki", Destination::Store(0)),
            entry("/enwiki/math-png", Destination::Store(1)),
            entry("/enwiki/page/Talk", servers("http://127.0.0.1:1")),
        ];
        let forwarder = Forwarder::open(entries, 0, 7).unwrap();
        for (path, expected) in [
            ("enwiki", Some(0)),
            ("enwiki/page/A", Some(0)),
            ("enwiki/math-png/a", Some(1)),
            ("enwiki/math-svg/a", Some(0)),
            ("enwiki/page/Talk/a", Some(99)),
            ("dewiki/math-png/a", None),
        ] {
            assert_eq!(selected(&forwarder, path), expected, "{path}");
        }
    }

    #[test]
    fn unchanged_servers_survive_a_replacement_and_an_error_changes_nothing() {
        let entries =
            || vec![entry("/a", servers("http://127.0.0.1:1")), entry("/b", servers("http://127.0.0.1:2"))];
        let forwarder = Forwarder::open(entries(), 0, 7).unwrap();
        let of = |index: usize| match &forwarder.table()[index].backend {
            Backend::Servers(servers) => Arc::as_ptr(servers),
            Backend::Store(_) => panic!("these are servers"),
        };
        let before = (of(0), of(1));
        let mut changed = entries();
        changed[1] = entry("/b", servers("http://127.0.0.1:3"));
        forwarder.replace(changed.clone()).unwrap();
        assert_eq!(of(0), before.0);
        assert_ne!(of(1), before.1);
        changed.push(entry("/c", servers("nonsense")));
        let (prefix, _) = forwarder.replace(changed).unwrap_err();
        assert_eq!(prefix.as_str(), "/c");
        assert_eq!(forwarder.table().len(), 2);
    }
}
