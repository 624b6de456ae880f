//! A program that goes on for long leaves others their turn, and does what is long elsewhere.

use super::*;
use crate::keys::Keys;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig};
use generate::model_handle::ModelHandle;
use serde_json::{Map, Value as Json, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use stream::{PoolLimits, SegmentPool, Stop};
use testing::small_vocabulary as vocab;
use text::{AnswerFormat, ChatTemplate};
use workflow::{Limits, Model, Observer, Ops, Plan, Program};

/// Bytes that are worked on in a poll.
const INLINE: usize = 16 << 10;

#[derive(Debug)]
struct Nobody;

impl Follower for Nobody {
    fn transition(&self, _: Transition, _: std::time::Instant) {}
}

/// Counts instructions, and notes which threads ran those of the first step.
#[derive(Clone, Default)]
struct Watch {
    count: Arc<AtomicU64>,
    first: Arc<Mutex<Vec<ThreadId>>>,
}

impl Observer for Watch {
    fn op(&mut self, place: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if place == "steps[0]" {
            self.first
                .lock()
                .expect("one at a time")
                .push(std::thread::current().id());
        }
    }

    fn drain(&mut self, _: &str, _: usize) {}
}

fn run(steps: &Json, text: &str) -> Run {
    let _dims = FakeConfig::default().dims;
    let engine = Engine::new(
        Box::new(FakeModel::new(FakeConfig::default())),
        EngineConfig::default(),
        clock::now(),
    );
    let template = ChatTemplate::new("", "", "").expect("valid");
    let limits = PoolLimits { segments_max: 64 };
    let engine = engine.expect("bounds").handle();
    let handle = ModelHandle {
        capabilities: template.capabilities(AnswerFormat::default()),
        ..ModelHandle::new(engine, vocab::tokenizer(), template, &[vocab::EOS], limits)
    };
    let model = Arc::new(Model {
        handle,
        pooling: None,
    });
    let document = json!({"name": "n", "return_value": "n", "steps": steps, "inputs": [
        {"name": "text", "type": "text"}, {"name": "n", "type": "u32", "default": 97}]});
    let program = Program::compile(document.to_string().as_bytes(), &Ops::default());
    let mut given = Map::new();
    given.insert("text".to_owned(), text.into());
    let plan = Plan {
        limits: Limits {
            inline_bytes_max: INLINE,
            ..Limits::default()
        },
        ..Plan::default()
    };
    let find = |_: Option<&str>| Some(Arc::clone(&model));
    let program = Arc::new(program.expect("it compiles"));
    Run::new(&program, &given, find, plan, clock::now()).expect("what it takes")
}

/// Drives it on a runtime of one thread, on which somebody else does what little they do again and again: how
/// it ended, and how often the other had its turn.
fn driven(mut run: Run, watch: &Watch) -> (Option<End>, u64) {
    run.observe(Box::new(watch.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let pool = SegmentPool::new(PoolLimits { segments_max: 64 });
        let (log, reader) = stream::open(&pool, 5000).expect("room");
        let key = Keys::anonymous();
        let caller = key.identify(None).expect("anybody");
        let drive = RunDriver {
            run,
            log,
            running: Arc::default(),
            place: None,
            follower: Box::new(Nobody),
            credit_window: 0,
            alarm: None,
            token_charge: caller.open_streams_permit(1).expect("room").token_charge(),
            charged: Spent::default(),
            inline_bytes_max: INLINE,
        };
        let turns = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        tokio::spawn(drive.run_to_end()).await.expect("no panic");
        other.abort();
        (reader.tap().end(), turns.load(Ordering::Relaxed))
    })
}

#[test]
fn long_run_yields_to_other_tasks() {
    let spin = json!([{"op": "while", "condition": true, "max_iterations": 1_000_000, "body": [
        {"op": "compute_int", "expr": "n + 1", "output": "n"}]}]);
    let tell = json!([
        {"op": "stream_init", "capacity": 1, "output": "out"},
        {"op": "while", "condition": true, "max_iterations": 1_000_000, "body": [
            {"op": "compute_int", "expr": "n + 0", "output": "m"},
            {"op": "stream_write_u32", "channel": "out", "input": "n"}]}]);
    for (steps, end) in [
        (spin, End::Failed(FailCode::Inference)),
        (tell, End::Length),
    ] {
        let watch = Watch::default();
        let (ended, turns) = driven(run(&steps, ""), &watch);
        assert_eq!(ended, Some(end));
        let count = watch.count.load(Ordering::Relaxed);
        assert!(count > 10_000, "{count}");
        let least = count / workflow::UNITS_PER_POLL;
        assert!(turns >= least, "{turns} turns beside {count} instructions");
    }
}

#[test]
fn long_step_runs_on_another_thread() {
    let steps = json!([{"op": "tokenize", "input": "text", "mode": "continue", "output": "ids"}]);
    for (bytes, elsewhere) in [(INLINE, false), (1 << 20, true)] {
        let watch = Watch::default();
        let (ended, _) = driven(run(&steps, &"x".repeat(bytes)), &watch);
        assert_eq!(ended, Some(End::Stop(Stop::Eos)));
        let first = watch.first.lock().expect("nobody else").clone();
        let here = std::thread::current().id();
        assert!(
            !first.is_empty() && first.iter().all(|id| (*id != here) == elsewhere),
            "{bytes}"
        );
    }
}
