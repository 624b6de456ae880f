//! Law 7 for images, with real towers and decoders in an engine: tokens and bits of log-probabilities do not depend on the cuts
//! of a prompt and of encodings, on other sequences, on what is cached, on draft tokens and on preemption.
//!
//! Promise (Engine): a prompt with images has the bits of its tokens in every engine, for plain rows, rows on three axes and
//! rows that see each other.
//! Also held by `engine/tests/it/media`.

use cpu::{LoadOptions, Model};
use engine::{
    Choice, Engine, EngineConfig, Handle, MediaInput, Next, Request, SamplingParams, Speculation,
    Token,
};
use kernels::{Isa, KvKind, Pool};
use media::{Detail, Pixels, Size};
use model::Forward;
use std::time::{Duration, Instant};
use stream::{PoolLimits, Read, Reader, SegmentPool};
use synth::{SynthSpec, VisionSpec};
use weights::gguf::Gguf;
use weights::vision::VisionConfig;

const PAGE: usize = 16;
const TOKENS: usize = 40;
/// Positions on three axes, and rows with the positions of tokens.
const PLAIN_ROWS: &str = "tiny-minicpmv4_6";
/// The tower of Qwen 3.5, whose text has recurrent layers next to positions on three axes.
const QWEN35: &str = "tiny-qwen35";
const PRESETS: [&str; 11] = [
    "tiny-idefics3",
    "tiny-qwen3vl_merger",
    QWEN35,
    "tiny-gemma3",
    "tiny-qwen2.5vl_merger",
    "tiny-pixtral",
    "tiny-mlp",
    "tiny-resampler",
    PLAIN_ROWS,
    "tiny-gemma4v",
    "tiny-gemma4uv",
];

/// An engine with a model that has a tower.
struct Bench {
    engine: Engine,
    handle: Handle,
    pool: SegmentPool<Token>,
    now: Instant,
    config: VisionConfig,
    preset: &'static str,
}

/// Tokens and the bits of their log-probabilities.
type Said = Vec<(u32, u32)>;

/// A part of a prompt: tokens, or a picture of this size and seed.
#[derive(Clone)]
enum Part {
    Text(Vec<u32>),
    Picture(u64, (u32, u32)),
}

impl Bench {
    #[expect(clippy::disallowed_methods, reason = "where virtual time starts")]
    fn new(preset: &'static str, pages: usize, engine: EngineConfig, threads: usize) -> Self {
        let (spec, text) = tower_and_text(preset);
        let text = Gguf::from_bytes(text.to_bytes().unwrap()).unwrap();
        let options = LoadOptions {
            context_max: Some(256),
            page_tokens: PAGE,
            pages,
            kv: KvKind::F16,
            states: 4,
            rows_max: 256,
            logit_rows_max: 32,
            mtp: false,
        };
        let isa = Isa::detect();
        let model = Model::load(text, isa, Pool::new(threads), &options, &mut |_| {});
        let mut model = model.unwrap();
        let tower = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        let mut config = VisionConfig::from_gguf(&tower).unwrap();
        // Small images: the largest has 64 rows, and 32 where each has as many as it may.
        let most = if preset.contains("gemma4") { 32 } else { 64 };
        config.recipe.rows.low = 16;
        (config.recipe.rows.auto, config.recipe.rows.high) = (most, most);
        let load = model.load_tower(tower, config.clone(), preset, &mut |_| {});
        load.unwrap();
        let capabilities = model.capabilities();
        let abilities = (capabilities.axes, model.blocks().is_some());
        // The text of `tiny-gemma4v` is that of E2B, which is causal.
        let blocks = ["tiny-gemma3", "tiny-gemma4uv"].contains(&preset);
        let axes = preset.contains("qwen") || preset == PLAIN_ROWS;
        let wanted = (axes, blocks);
        assert_eq!(abilities, wanted, "{preset}");
        let now = Instant::now();
        let mut engine = Engine::new(Box::new(model), engine, now).unwrap();
        Self {
            handle: engine.handle(),
            engine,
            pool: SegmentPool::new(PoolLimits { segments_max: 1000 }),
            now,
            config,
            preset,
        }
    }

    fn prompt(&self, parts: &[Part]) -> (Vec<u32>, Vec<MediaInput>) {
        let (mut prompt, mut media) = (Vec::new(), Vec::new());
        for part in parts {
            let (seed, (width, height)) = match part {
                Part::Text(tokens) => {
                    prompt.extend_from_slice(tokens);
                    continue;
                }
                Part::Picture(seed, size) => (*seed, *size),
            };
            let size = Size { width, height };
            let plan = self.config.recipe.plan(size, Detail::Auto).unwrap();
            let views = self.config.recipe.inputs(&plan, &picture(seed, size));
            for (at, view) in (0_u8..).zip(views) {
                let rows = prompt.len()..prompt.len() + view.rows as usize;
                prompt.resize(rows.end, 9);
                let mut key = [at; 32];
                key[..8].copy_from_slice(&seed.to_le_bytes());
                key[8..12].copy_from_slice(&width.to_le_bytes());
                key[12..16].copy_from_slice(&height.to_le_bytes());
                let grid = match self.preset {
                    PLAIN_ROWS => (0, 0),
                    _ => (view.merged.rows, view.merged.columns),
                };
                media.push(MediaInput {
                    key,
                    rows,
                    grid,
                    input: view,
                });
                prompt.push(10);
            }
        }
        (prompt, media)
    }

    fn ask(&self, parts: &[Part]) -> Reader<Token> {
        let (prompt, media) = self.prompt(parts);
        let (tokens, reader) = stream::open(&self.pool, TOKENS).unwrap();
        let request = Request {
            media,
            sampling: SamplingParams {
                temperature: 0.8,
                top_k: 20,
                logprobs: true,
                seed: 5,
                ..SamplingParams::default()
            },
            choices: vec![Choice::new(tokens)],
            ..Request::new(prompt, TOKENS)
        };
        self.handle.submit(request).unwrap();
        reader
    }

    /// Runs all requests to their ends, `steps` steps apart.
    fn run(&mut self, asked: &[&[Part]], steps: usize) -> Vec<Said> {
        let mut readers = Vec::new();
        for parts in asked {
            readers.push(self.ask(parts));
            (0..steps).for_each(|_| _ = self.step());
        }
        for _ in 0..20_000 {
            if self.step() != Next::Step {
                break;
            }
        }
        readers.iter_mut().map(read).collect()
    }

    fn step(&mut self) -> Next {
        self.now += Duration::from_millis(1);
        self.engine.step(self.now).next
    }
}

fn tower_and_text(preset: &str) -> (VisionSpec, SynthSpec) {
    if preset == QWEN35 {
        let tower = VisionSpec {
            deepstack: Vec::new(),
            ..VisionSpec::preset("tiny-qwen3vl_merger").unwrap()
        };
        return (tower, SynthSpec::preset(QWEN35).unwrap());
    }
    let tower = VisionSpec::preset(preset).unwrap();
    let text = tower.text().unwrap();
    (tower, text)
}

fn picture(seed: u64, size: Size) -> Pixels {
    let bytes = (0..size.width as usize * size.height as usize * 3).map(|at| {
        let mixed = (at as u64 + seed * 977).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 56) as u8 / 4 + (at * seed as usize / 50 % 190) as u8
    });
    Pixels::new(size, bytes.collect())
}

fn read(reader: &mut Reader<Token>) -> Said {
    let mut said = Said::new();
    let mut buffer = [Token::default(); TOKENS];
    while let Read::Items(n) = reader.read(&mut buffer) {
        said.extend(buffer[..n].iter().map(|t| (t.id, t.logprob.to_bits())));
    }
    said
}

fn text(seed: u32, len: u32) -> Part {
    Part::Text((0..len).map(|i| 20 + (i * i + i * seed) % 90).collect())
}

/// Pages for the longest prompt of a tower: images of LLaVA 1.6 and slices have most rows.
fn few_pages(preset: &str) -> usize {
    match preset {
        "tiny-mlp" => 18,
        "tiny-resampler" => 12,
        _ => 10,
    }
}

/// Pages of an engine, its steps between two requests, and its settings.
fn engines(few: usize) -> [(usize, usize, EngineConfig); 3] {
    let plain = EngineConfig::default();
    [
        (64, 0, plain),
        // Steps smaller than an image, and a cache for less than one.
        (
            64,
            3,
            EngineConfig {
                step_tokens: 40,
                step_target: Some(Duration::from_micros(1500)),
                encodings_bytes_max: 1,
                ..plain
            },
        ),
        // Few pages: sequences are preempted.
        (
            few,
            2,
            EngineConfig {
                speculation: Speculation::PromptLookup,
                step_tokens: 90,
                ..plain
            },
        ),
    ]
}

#[test]
fn answers_have_equal_bits_in_every_engine() {
    for preset in PRESETS {
        let prompts = [
            vec![text(1, 21), Part::Picture(1, (70, 50)), text(2, 9)],
            vec![
                text(1, 21),
                Part::Picture(2, (70, 50)),
                Part::Picture(1, (70, 50)),
                text(3, 5),
            ],
            vec![Part::Picture(3, (40, 90))],
            vec![text(4, 60)],
            vec![text(1, 21), Part::Picture(1, (70, 50)), text(5, 30)],
        ];
        let asked: Vec<_> = prompts.iter().map(|parts| &parts[..]).collect();
        let alone: Vec<_> = asked
            .iter()
            .map(|parts| {
                let config = EngineConfig {
                    prefix_cache: false,
                    ..EngineConfig::default()
                };
                let mut bench = Bench::new(preset, 64, config, 1);
                bench.run(&[parts], 0).remove(0)
            })
            .collect();
        assert!(alone.iter().all(|said| said.len() == TOKENS), "{preset}");
        assert_ne!(alone[0], alone[4], "{preset}");
        let few = few_pages(preset);
        for (pages, steps, config) in engines(few) {
            let mut bench = Bench::new(preset, pages, config, 2);
            assert_eq!(bench.run(&asked, steps), alone, "{preset}, {pages} pages");
            // Again, from the prefix cache.
            assert_eq!(bench.run(&asked, steps), alone, "{preset}, {pages} pages");
            let stats = bench.handle.stats();
            assert!(stats.encodings() > 0, "{preset}");
            // A text with recurrent layers continues at kept states only; there are few, for which sequences wait.
            if ![PLAIN_ROWS, QWEN35].contains(&preset) {
                assert!(stats.prefix_hit_tokens() > 0, "{preset}");
                assert!(pages > few || stats.preemptions() > 0, "{preset}");
            }
        }
    }
}
