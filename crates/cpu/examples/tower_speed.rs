//! Seconds of a tower for one picture, and its longest unit: the time for which running sequences wait.
//!
//! `tower_speed MMPROJ WIDTH HEIGHT [ROUNDS]` prints the median of ROUNDS (default 3), as JSON; `so400m` in place of a file
//! makes Gemma 3's tower with random weights in F16. Threads: `MILLRACE_THREADS`, or 2.

use cpu::{Tower, TowerAlone};
use kernels::{Format, Isa, Pool};
use media::{Detail, Pixels, Size, View};
use model::{Encode, EncoderInput};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use synth::{Mix, VisionSpec};
use weights::gguf::Gguf;
use weights::vision::VisionConfig;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: tower_speed MMPROJ WIDTH HEIGHT [ROUNDS]";
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or(usage)?;
    let width = args.next().ok_or(usage)?.parse()?;
    let height = args.next().ok_or(usage)?.parse()?;
    let rounds = args.next().map_or(Ok(3), |rounds| rounds.parse())?;
    let threads = std::env::var("MILLRACE_THREADS").map_or(Ok(2), |threads| threads.parse())?;
    let gguf = match path.as_str() {
        "so400m" => Gguf::from_bytes(so400m().ok_or("no such preset")?.to_bytes()?)?,
        path => Gguf::open(path)?,
    };
    let config = VisionConfig::from_gguf(&gguf)?;
    let mut pool = Pool::new(threads);
    let tower = Tower::load(gguf, config, (Isa::detect(), &mut pool), &mut |_| {})?;
    let size = Size::new(width, height);
    let view = first_view(&tower, size)?;
    let mut tower = TowerAlone::new(tower, pool);
    let mut all = Vec::new();
    let mut longest = 0.0f64;
    let mut units = 0;
    for _ in 0..=rounds {
        let input: EncoderInput = Arc::clone(&view) as EncoderInput;
        units = tower.begin(&input)?;
        let mut seconds = 0.0;
        for _ in 0..units {
            #[expect(clippy::disallowed_methods, reason = "a measurement")]
            let begin = Instant::now();
            tower.advance()?;
            let unit = begin.elapsed().as_secs_f64();
            (seconds, longest) = (seconds + unit, longest.max(unit));
        }
        all.push(seconds);
    }
    all.remove(0);
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2).ok_or("at least one round")?;
    let rows = view.rows;
    let mean = median / units as f64 * 1e3;
    let longest = longest * 1e3;
    writeln!(
        std::io::stdout(),
        "{{\"rows\":{rows},\"patches\":{},\"units\":{units},\"seconds\":{median:.3},\"unit_ms\":{mean:.1},\"longest_ms\":{longest:.1}}}",
        view.patches.count()
    )?;
    Ok(())
}

/// Gemma 3's tower, with four of its layers.
fn so400m() -> Option<VisionSpec> {
    Some(VisionSpec {
        dim: 1152,
        layers: 4,
        heads: 16,
        ffn: 4304,
        patch: 14,
        image: 896,
        merge: 4,
        projection_dim: 2560,
        mix: Mix::Uniform(Format::F16),
        ..VisionSpec::preset("small-gemma3")?
    })
}

fn first_view(tower: &Tower, size: Size) -> Result<Arc<View>, Box<dyn Error>> {
    let recipe = &tower.config().recipe;
    let plan = recipe.plan(size, Detail::High)?;
    let levels = (0..size.rgb_bytes()).map(|at| (at * 31 % 251) as u8);
    let views = recipe.inputs(&plan, &Pixels::new(size, levels.collect()));
    Ok(views.into_iter().next().ok_or("no view")?)
}
