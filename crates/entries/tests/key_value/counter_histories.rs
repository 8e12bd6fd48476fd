//! Random histories of counters, compared with a model.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use rashomon_clock::{Clock as _, Timestamp};
use rashomon_entries::{Bucket, Error, IdempotencyKey, KeyValueStore};
use rashomon_tables::{Faulty, Plan, Rates, TableStore};

use crate::{
    counters::list_counters,
    support::{World, counter, domain, idempotency_key, key, name},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How far the clock of the second process is behind.
const BEHIND: Duration = Duration::from_secs(120);

const COUNTERS: [&str; 3] = ["a", "b/c", "ü"];

struct History {
    seed: u64,
    random: fastrand::Rng,
    world: World,
    faulty: Arc<Faulty<Arc<dyn TableStore>>>,
    stores: Vec<KeyValueStore>,
    bucket: Bucket,
    rates: Rates,
    values: BTreeMap<String, i64>,
    /// The answers of the idempotency keys, and the times of the increments by the clock of the world.
    answers: BTreeMap<(String, IdempotencyKey), (i64, Timestamp)>,
}

/// An increment of a history.
struct Increment {
    by: i64,
    idempotency_key: Option<IdempotencyKey>,
}

impl History {
    async fn new(seed: u64, is_alone: bool, fails: bool) -> Self {
        let (world, faulty) = World::faulty(is_alone).await;
        let mut stores = vec![world.store.clone()];
        if !is_alone {
            stores.push(world.behind(BEHIND));
        }
        let bucket = world.bucket("hits", counter()).await;
        let rates = if fails { Rates { before: 60, after: 60, midway: 120 } } else { Rates::default() };
        let (values, answers) = (BTreeMap::new(), BTreeMap::new());
        let random = fastrand::Rng::with_seed(seed);
        Self { seed, random, world, faulty, stores, bucket, rates, values, answers }
    }

    fn fails(&self) -> bool {
        self.rates != Rates::default()
    }

    fn start_faults(&mut self) {
        let plan = Plan::seeded(self.random.u64(..), self.rates);
        self.faulty.set_plan(plan);
    }

    fn store(&mut self) -> KeyValueStore {
        self.random.choice(&self.stores).expect("a process").clone()
    }

    /// Whether the answer of a key is certainly remembered, certainly expired, or neither (`None`), since the clocks
    /// of the processes differ.
    fn is_remembered(&self, id: &(String, IdempotencyKey)) -> Option<bool> {
        let Some((_, at)) = self.answers.get(id) else { return Some(false) };
        let now = self.world.clock.now();
        let behind = if self.stores.len() > 1 { BEHIND } else { Duration::ZERO };
        if now < at.saturating_add(DAY).saturating_sub(behind) {
            return Some(true);
        }
        (now >= at.saturating_add(DAY + behind)).then_some(false)
    }

    fn increment(&mut self, text: &str) -> Option<Increment> {
        let number = self.random.u8(..6);
        if number == 0 && !self.fails() {
            return Some(Increment { by: self.random.i64(-9..=9), idempotency_key: None });
        }
        let idempotency_key = idempotency_key(&number.to_string());
        self.is_remembered(&(text.to_owned(), idempotency_key.clone()))?;
        let by = 1 << number;
        Some(Increment { by, idempotency_key: Some(idempotency_key) })
    }

    /// Increments of one counter at the same time, each repeated until it succeeds.
    async fn count(&mut self) {
        let text = self.random.choice(COUNTERS).expect("a counter");
        let number = self.random.usize(1..=4);
        let increments: Vec<_> = (0..number).filter_map(|_| self.increment(text)).collect();
        let stores: Vec<_> = increments.iter().map(|_| self.store()).collect();
        self.start_faults();
        let carried_out = increments.iter().zip(&stores).map(async |(increment, store)| {
            loop {
                let Increment { by, idempotency_key } = increment;
                match store.increment(&self.bucket, &key(text), *by, idempotency_key.as_ref()).await {
                    Ok(answer) => return answer,
                    Err(Error::Records(_)) if self.fails() => {}
                    Err(error) => panic!("seed {}: {error}", self.seed),
                }
            }
        });
        let answers = join_all(carried_out).await;
        self.faulty.set_plan(Plan::empty());
        self.check_answers(text, &increments, &answers);
    }

    /// Checks the answers of increments that were carried out at the same time, and adds them to the model.
    fn check_answers(&mut self, text: &str, increments: &[Increment], answers: &[i64]) {
        let (seed, now) = (self.seed, self.world.clock.now());
        let mut new = Vec::new();
        for (Increment { by, idempotency_key }, answer) in increments.iter().zip(answers) {
            let Some(idempotency_key) = idempotency_key else {
                new.push((*by, *answer));
                continue;
            };
            let id = (text.to_owned(), idempotency_key.clone());
            if self.is_remembered(&id) == Some(true) {
                assert_eq!(self.answers[&id].0, *answer, "seed {seed}: {text} {idempotency_key}");
            } else {
                self.answers.insert(id, (*answer, now));
                new.push((*by, *answer));
            }
        }
        let value = self.values.get(text).copied();
        assert!(is_chain(value.unwrap_or(0), &mut new.clone()), "seed {seed}: {text} {value:?} {new:?}");
        if !new.is_empty() {
            let sum: i64 = new.iter().map(|(by, _)| by).sum();
            *self.values.entry(text.to_owned()).or_default() += sum;
        }
    }

    async fn delete(&mut self) {
        let text = self.random.choice(COUNTERS).expect("a counter");
        let store = self.store();
        self.start_faults();
        let existed = loop {
            match store.delete_counter(&self.bucket, &key(text)).await {
                Ok(existed) => break existed,
                Err(Error::Records(_)) if self.fails() => {}
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        };
        self.faulty.set_plan(Plan::empty());
        let expected = self.values.remove(text).is_some();
        assert!(existed == expected || self.fails() && expected, "seed {}: {text}", self.seed);
    }

    async fn check(&self) {
        let expected: Vec<_> = self.values.iter().map(|(key, value)| (key.clone(), *value)).collect();
        for store in &self.stores {
            assert_eq!(list_counters(store, &self.bucket, 2).await, expected, "seed {}", self.seed);
            for text in COUNTERS {
                let value = store.value(&self.bucket, &key(text)).await.expect("read");
                assert_eq!(value, self.values.get(text).copied().unwrap_or(0), "seed {}", self.seed);
            }
        }
    }

    async fn run(mut self) {
        for _ in 0..50 {
            match self.random.u8(..100) {
                0..70 => self.count().await,
                70..78 => self.delete().await,
                78..86 => self.check().await,
                86..93 => {
                    let by = Duration::from_secs(self.random.u64(1..8 * 3600));
                    self.world.clock.advance(by);
                }
                93..95 => self.world.clock.advance(2 * DAY),
                95..98 => {
                    self.world.store.collect(DAY).await.expect("collected");
                }
                _ => {
                    self.world.store.delete_bucket(&domain(), &name("hits")).await.expect("deleted");
                    self.bucket = self.world.bucket("hits", counter()).await;
                    self.values.clear();
                    self.answers.clear();
                }
            }
        }
        self.check().await;
    }
}

/// Whether some order of the increments, from this value on, gives each increment its answer.
fn is_chain(value: i64, increments: &mut Vec<(i64, i64)>) -> bool {
    if increments.is_empty() {
        return true;
    }
    (0..increments.len()).any(|next| {
        let (by, answer) = increments.remove(next);
        let is_chain = value + by == answer && is_chain(answer, increments);
        increments.insert(next, (by, answer));
        is_chain
    })
}

#[tokio::test]
async fn counters_of_one_process_agree_with_the_model() {
    for seed in 0..200 {
        History::new(seed, true, seed % 2 == 1).await.run().await;
    }
}

#[tokio::test]
async fn counters_of_two_processes_agree_with_the_model() {
    for seed in 0..200 {
        History::new(seed, false, seed % 2 == 1).await.run().await;
    }
}
