//! Fair shares between keys at engines that several gateways use. No network: records of requests go through the executor
//! to stepped engines, and tokens are counted as they are sent.
//!
//! Promise (Limits of keys over gateways): a key with ten times the demand gets its share of all engines, whatever
//! gateways the keys use; unused shares are given to other keys.

use cluster::executor::{Admission, Attempts, ExecutorModel, start};
use cluster::messages::{Attempt, ContentIdentity, Run, RunChoice};
use cluster::names::InstanceId;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig, SamplingParams};
use generate::model_handle::ModelHandle;
use generate::remote_request::RemoteRequest;
use generate::request::GenerationParams;
use generate::request_record::PromptRecord;
use model::Dims;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use stream::PoolLimits;
use testing::small_vocabulary as vocab;
use text::ChatTemplate;

const ENGINES: usize = 2;
const GATEWAYS: u64 = 3;
/// Rows of a step of an engine, so that keys compete.
const ROWS: usize = 8;

struct EngineSide {
    engine: Engine,
    attempts: Attempts,
    models: Vec<ExecutorModel>,
}

/// A key with requests that are always open.
#[derive(Clone, Copy)]
struct Key {
    account: u64,
    weight: u32,
    /// Requests at each engine.
    open: usize,
    /// Gateways at which the key is used: the first ones.
    gateways: u64,
}

struct Cluster {
    engines: Vec<EngineSide>,
    now: Instant,
    handles: u64,
    /// By gateway and handle: account, engine.
    open: HashMap<(InstanceId, u64), (u64, usize)>,
    /// By account.
    tokens: BTreeMap<u64, usize>,
}

fn engine_side(id: u64, now: Instant) -> EngineSide {
    let config = FakeConfig {
        dims: Dims {
            vocab: 258 + vocab::WORDS.len(),
            context_max: 512,
            page_tokens: 8,
            pages: 4096,
            rows_max: ROWS,
            logit_rows_max: ROWS,
        },
        eos: vocab::EOS,
        tokens: 97..123,
        ..FakeConfig::default()
    };
    let mut engine = Engine::new(
        Box::new(FakeModel::new(config)),
        EngineConfig::default(),
        now,
    )
    .unwrap();
    let limits = PoolLimits {
        segments_max: 16384,
    };
    let handle = ModelHandle::new(
        engine.handle(),
        vocab::tokenizer(),
        ChatTemplate::new("{{ messages[-1].content }}", "", "").unwrap(),
        &[vocab::EOS],
        limits,
    );
    let model = ExecutorModel::new("fake".to_owned(), ContentIdentity::default(), handle);
    EngineSide {
        engine,
        attempts: Attempts::new(InstanceId(id)),
        models: vec![model],
    }
}

fn run(key: &Key, gateway: InstanceId, handle: u64) -> Run {
    let terms = serde_json::json!({"account": key.account, "weight": key.weight});
    let request = RemoteRequest {
        prompt: PromptRecord {
            ids: vec![97 + (handle % 26) as u32; 4],
            ..PromptRecord::default()
        },
        params: GenerationParams {
            sampling: SamplingParams {
                ignore_eos: true,
                ..SamplingParams::default()
            },
            max_tokens: Some(20),
            ..GenerationParams::default()
        },
        n: 1,
        first_choice: 0,
        context_max: 512,
        seed: handle,
        credit_window: 0,
        terms: serde_json::from_value(terms).unwrap(),
        in_effect: engine::RequestUpdate::default(),
        embedding: None,
        images: Vec::new(),
    };
    Run {
        handle,
        attempt: 1,
        gateway,
        model_key: "fake".to_owned(),
        request: request.encode().unwrap(),
        choices: vec![RunChoice::default()],
        ..Run::default()
    }
}

impl Cluster {
    fn new() -> Self {
        let now = tokio::time::Instant::now().into_std();
        Self {
            engines: (0..ENGINES as u64).map(|id| engine_side(id, now)).collect(),
            now,
            handles: 0,
            open: HashMap::new(),
            tokens: BTreeMap::new(),
        }
    }

    /// Submits what is missing of a key's demand.
    fn fill(&mut self, key: &Key) {
        for engine in 0..ENGINES {
            let is_open = |open: &&(u64, usize)| **open == (key.account, engine);
            let open = self.open.values().filter(is_open).count();
            for _ in open..key.open {
                self.handles += 1;
                let gateway = InstanceId(1 + self.handles % key.gateways);
                self.submit(engine, run(key, gateway, self.handles), key.account);
            }
        }
    }

    fn submit(&mut self, engine: usize, run: Run, account: u64) {
        let (gateway, handle) = (run.gateway, run.handle);
        let side = &mut self.engines[engine];
        let admitted = side.attempts.admit(Box::new(run), String::new(), self.now);
        let Admission::Start(run) = admitted else {
            panic!("{admitted:?}");
        };
        let attempt = Attempt { handle, attempt: 1 };
        let outcome = start(&side.models, *run, self.now);
        assert!(outcome.is_ok());
        side.attempts.settle((gateway, attempt), outcome);
        self.open.insert((gateway, handle), (account, engine));
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(10);
        for side in &mut self.engines {
            side.engine.step(self.now);
            let (open, tokens) = (&mut self.open, &mut self.tokens);
            side.attempts.send_news(self.now, &mut |gateway, batch| {
                for run in batch.runs() {
                    let (account, _) = open[&(gateway, run.key.handle)];
                    *tokens.entry(account).or_default() += run.tokens.len();
                }
                for end in batch.ends() {
                    open.remove(&(gateway, end.handle));
                }
            });
            (1..=GATEWAYS).for_each(|id| side.attempts.hear(InstanceId(id), self.now));
            side.attempts.expire(self.now);
        }
    }

    /// Parts of all tokens, by key.
    fn parts(&mut self, keys: &[Key], steps: usize) -> Vec<f64> {
        for step in 0..steps {
            if step == steps / 4 {
                self.tokens.clear();
            }
            keys.iter().for_each(|key| self.fill(key));
            self.step();
        }
        let all: usize = self.tokens.values().sum();
        let part = |key: &Key| self.tokens[&key.account] as f64 / all as f64;
        keys.iter().map(part).collect()
    }
}

fn key(account: u64, weight: u32, open: usize, gateways: u64) -> Key {
    Key {
        account,
        weight,
        open,
        gateways,
    }
}

#[test]
fn key_with_ten_times_the_demand_gets_its_share_of_all_engines() {
    let rows = [
        ("demand", [1, 1, 1], [40, 4, 4], [3, 3, 3]),
        ("one gateway", [1, 1, 1], [40, 4, 4], [3, 1, 1]),
        ("weights", [1, 2, 1], [80, 8, 8], [3, 2, 1]),
    ];
    for (name, weights, open, gateways) in rows {
        let keys = [0, 1, 2].map(|i| key(i as u64 + 1, weights[i], open[i], gateways[i]));
        let parts = Cluster::new().parts(&keys, 2000);
        let sum: u32 = weights.iter().sum();
        for (part, weight) in parts.iter().zip(weights) {
            let share = f64::from(weight) / f64::from(sum);
            assert!((part / share - 1.0).abs() < 0.05, "{name}: {parts:?}");
        }
    }
}

#[test]
fn share_that_a_key_does_not_use_goes_to_the_others() {
    // One request at a time is at most one of the eight rows of a step.
    let keys = [key(1, 1, 40, 3), key(2, 1, 1, 1)];
    let parts = Cluster::new().parts(&keys, 2000);
    assert!((0.08..0.13).contains(&parts[1]), "{parts:?}");
}
