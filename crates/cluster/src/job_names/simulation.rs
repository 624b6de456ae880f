//! Gateways that want one name, over a simulated network with seeds: at most one job of the name at any time.

use super::{NameAnswers, NameClaim, NameLookup, NameRecord, NameRefusal};
use crate::names::InstanceId;
use crate::records::PublishOutcome;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testing::random::Random;
use tokio::time::{Instant, sleep};

const GATEWAYS: u64 = 4;
const SEEDS: u64 = 60;
/// Simulated time of one seed.
const LENGTH: Duration = Duration::from_secs(120);
/// Silence after which an instance is regarded as gone.
const GONE: Duration = Duration::from_secs(3);

/// Faults of a simulation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Faults {
    None,
    /// Requests and answers are lost, or late.
    Network,
    /// Gateways die, or stop and go on.
    Processes,
}

#[derive(Default)]
struct Gateway {
    job: Option<u128>,
    /// Since when the process is dead or stopped.
    silent_since: Option<Instant>,
}

struct World {
    faults: Faults,
    random: Random,
    last: Option<(u64, NameRecord)>,
    gateways: BTreeMap<InstanceId, Gateway>,
    /// Jobs whose clients have an answer.
    living: Vec<u128>,
    /// Jobs of dead gateways, with records.
    orphans: Vec<u128>,
    answered: usize,
}

impl World {
    /// A job whose client gets an answer.
    fn answer(&mut self, stream: u128) {
        assert!(self.living.is_empty(), "two jobs of one name");
        self.living.push(stream);
        self.answered += 1;
    }
}

/// The world as one gateway sees it.
#[derive(Clone)]
struct Sim {
    world: Arc<Mutex<World>>,
    own: InstanceId,
}

impl Sim {
    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.world.lock().unwrap())
    }

    fn own<T>(&self, act: impl FnOnce(&mut Gateway) -> T) -> T {
        self.with(|world| act(world.gateways.entry(self.own).or_default()))
    }

    fn below(&self, n: u64) -> u64 {
        self.with(|world| world.random.below(n))
    }

    async fn pause(&self, ms: u64) {
        let ms = self.below(ms);
        sleep(Duration::from_millis(ms)).await;
    }

    /// Whether a fault of this kind happens now.
    fn fails(&self, faults: Faults, percent: u64) -> bool {
        self.with(|world| world.faults == faults && world.random.chance(percent))
    }
}

impl NameLookup for Sim {
    async fn last(&self) -> Result<Option<(u64, NameRecord)>, String> {
        self.pause(20).await;
        if self.fails(Faults::Network, 5) {
            return Err("lost".to_owned());
        }
        let last = self.with(|world| world.last);
        self.pause(20).await;
        Ok(last)
    }

    async fn append(&self, expected: u64, record: NameRecord) -> PublishOutcome {
        let sim = self.clone();
        let append = move || {
            sim.with(|world| {
                let last = world.last.map_or(0, |(sequence, _)| sequence);
                (last == expected).then(|| world.last = Some((last + 1, record)))
            })
        };
        self.pause(20).await;
        if self.fails(Faults::Network, 10) {
            return PublishOutcome::Unknown;
        }
        if self.fails(Faults::Network, 10) {
            let late = Duration::from_millis(self.below(2000));
            tokio::spawn(async move {
                sleep(late).await;
                append();
            });
            return PublishOutcome::Unknown;
        }
        let stored = append();
        self.pause(20).await;
        match stored {
            Some(()) => PublishOutcome::Stored(expected + 1),
            None => PublishOutcome::WrongSequence,
        }
    }

    async fn ask(&self) -> NameAnswers {
        let others = self.with(|world| world.gateways.keys().copied().collect::<Vec<_>>());
        let others = others.into_iter().filter(|id| *id != self.own);
        let asked = others.map(|id| async move {
            self.pause(20).await;
            let is_lost = self.fails(Faults::Network, 3);
            let is_gone = self.is_gone(id);
            let answer = self.with(|world| {
                let gateway = &world.gateways[&id];
                let is_silent = gateway.silent_since.is_some();
                (!is_lost && !is_silent).then_some(gateway.job.is_some())
            });
            self.pause(20).await;
            (id, is_gone, answer)
        });
        let mut answers = NameAnswers::default();
        for (id, is_gone, answer) in join_all(asked).await {
            match answer {
                Some(is_used) => {
                    answers.is_used |= is_used;
                    answers.answered.push(id);
                }
                None if is_gone => {}
                None => answers.unanswered = Some("silent".to_owned()),
            }
        }
        answers
    }

    fn is_gone(&self, instance: InstanceId) -> bool {
        self.with(|world| {
            let gateway = world.gateways.get(&instance);
            let since = gateway.and_then(|gateway| gateway.silent_since);
            since.is_some_and(|since| since.elapsed() > GONE)
        })
    }

    async fn has_records(&self, stream: u128) -> Result<bool, String> {
        self.pause(20).await;
        Ok(self.with(|world| world.orphans.contains(&stream)))
    }
}

fn start(seed: u64, faults: Faults) -> Vec<Sim> {
    let world = Arc::new(Mutex::new(World {
        faults,
        random: Random(seed),
        last: None,
        gateways: BTreeMap::new(),
        living: Vec::new(),
        orphans: Vec::new(),
        answered: 0,
    }));
    let sim = |number| {
        let (world, own) = (Arc::clone(&world), InstanceId(number));
        let sim = Sim { world, own };
        sim.own(|_| {});
        sim
    };
    (1..=GATEWAYS).map(sim).collect()
}

impl Sim {
    fn request(&self) -> NameClaim<Self> {
        NameClaim {
            own: self.own,
            lookup: self.clone(),
        }
    }

    /// Opens a job if the name is free, and takes the name.
    async fn open_job(&self) -> Result<u128, NameRefusal> {
        let request = self.request();
        let after = request.expect_unused().await?;
        if self.fails(Faults::Processes, 10) {
            self.own(|own| own.silent_since = Some(Instant::now()));
            self.pause(8000).await;
            self.own(|own| own.silent_since = None);
        }
        let stream = u128::from(self.below(u64::MAX));
        self.own(|own| own.job = Some(stream));
        self.pause(20).await;
        let taken = request.take(after, stream).await;
        if taken.is_err() {
            self.own(|own| own.job = None);
        }
        taken.map(|()| stream)
    }

    /// One request: a job of the name, for a while, or a refusal. False: the process is dead.
    async fn run_job(&self) -> bool {
        if self.own(|own| own.job.is_some()) {
            return true;
        }
        let Ok(stream) = self.open_job().await else {
            return true;
        };
        self.with(|world| world.answer(stream));
        if self.fails(Faults::Processes, 5) {
            let orphan = self.own(|own| {
                own.silent_since = Some(Instant::now());
                own.job.take()
            });
            self.with(|world| world.orphans.extend(orphan));
            return false;
        }
        self.pause(1000).await;
        self.end_job();
        true
    }

    fn end_job(&self) {
        let job = self.own(|own| own.job.take());
        self.with(|world| world.living.retain(|stream| Some(*stream) != job));
    }

    /// A gateway that takes over what dead ones have left.
    async fn take_over(&self) {
        if self.own(|own| own.job.is_some()) {
            return;
        }
        if let Some(stream) = self.with(|world| world.orphans.pop()) {
            self.own(|own| own.job = Some(stream));
            self.pause(1000).await;
            self.end_job();
        }
    }
}

/// Runs a world; returns the number of jobs.
async fn run(seed: u64, faults: Faults) -> usize {
    let gateways = start(seed, faults);
    let end = Instant::now() + LENGTH;
    let live = |gateway: Sim| async move {
        while Instant::now() < end {
            gateway.pause(300).await;
            if !gateway.run_job().await {
                return;
            }
        }
    };
    // The last one does not want the name, and so does not die.
    let successor = gateways[gateways.len() - 1].clone();
    let takes_over = async {
        while Instant::now() < end {
            sleep(GONE + Duration::from_secs(1)).await;
            successor.take_over().await;
        }
    };
    let wanting = gateways[..gateways.len() - 1].iter().cloned();
    tokio::join!(join_all(wanting.map(live)), takes_over);
    successor.with(|world| world.answered)
}

#[tokio::test(start_paused = true)]
async fn name_has_one_job_at_a_time_over_a_network_that_loses_requests() {
    for seed in 0..SEEDS {
        let jobs = run(seed, Faults::Network).await;
        assert!(jobs > 20, "seed {seed}: {jobs} jobs");
    }
}

#[tokio::test(start_paused = true)]
async fn name_has_one_job_at_a_time_where_gateways_die_and_stop() {
    let mut jobs = 0;
    for seed in 0..SEEDS {
        jobs += run(seed, Faults::Processes).await;
    }
    assert!(jobs > 5 * SEEDS as usize, "{jobs} jobs");
}

#[tokio::test(start_paused = true)]
async fn one_of_several_requests_at_one_moment_gets_the_name() {
    for seed in 0..SEEDS * 4 {
        let gateways = start(seed, Faults::None);
        let opened = join_all(gateways.iter().map(Sim::open_job)).await;
        let won = opened.iter().filter(|opened| opened.is_ok()).count();
        let taken = opened
            .iter()
            .filter(|opened| **opened == Err(NameRefusal::Taken))
            .count();
        assert_eq!((won, taken), (1, opened.len() - 1), "{seed}: {opened:?}");
    }
}
