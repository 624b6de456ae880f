//! Seconds of a tower for one picture, and its longest unit: the time for which running sequences wait.
//!
//! `tower_speed MMPROJ WIDTH HEIGHT [ROUNDS] [ROWS]` prints the median of ROUNDS (default 3), as JSON, and writes the rows of
//! the picture's first run to the file ROWS, as f32. Threads: `MILLRACE_THREADS`, or 2.
//! `tower_speed write SHAPE FORMAT LAYERS MMPROJ TEXT [PRESET FORMAT]` writes a tower of that shape with random weights, and a
//! text model that fits: a tiny one, or that of a preset. Shapes: `siglip-b`, `gemma3`, `qwen3vl`, `pixtral`.

use cpu::{Tower, TowerAlone};
use kernels::{Isa, Pool};
use media::{Detail, Pixels, Size, View};
use model::{Encode, EncoderInput};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use synth::{Mix, SynthSpec, VisionSpec};
use weights::gguf::Gguf;
use weights::vision::VisionConfig;

const USAGE: &str = "usage: tower_speed MMPROJ WIDTH HEIGHT [ROUNDS] [ROWS], \
    or tower_speed write SHAPE FORMAT LAYERS MMPROJ TEXT [PRESET FORMAT]";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [
            "write",
            shape,
            format,
            layers,
            mmproj,
            text,
            ref preset @ ..,
        ] => {
            let mut spec = spec(shape, format, layers.parse()?)?;
            let mut text_spec = spec.text().ok_or("no text model of this projector")?;
            if let [preset, format] = preset {
                text_spec = SynthSpec {
                    marks: text_spec.marks,
                    deepstack: text_spec.deepstack,
                    mix: Mix::from_name(format).ok_or("no such format")?,
                    ..SynthSpec::preset(preset).ok_or("no such preset")?
                };
                spec.projection_dim = text_spec.dim;
            }
            std::fs::write(mmproj, spec.to_bytes()?)?;
            Ok(std::fs::write(text, text_spec.to_bytes()?)?)
        }
        [mmproj, width, height, ref rest @ ..] => {
            let size = Size::new(width.parse()?, height.parse()?);
            let rounds = rest.first().map_or(Ok(3), |rounds| rounds.parse())?;
            measure(mmproj, size, rounds, rest.get(1).copied())
        }
        _ => Err(USAGE.into()),
    }
}

/// Computes a picture once to warm up and `rounds` times more.
fn measure(
    mmproj: &str,
    size: Size,
    rounds: usize,
    rows_file: Option<&str>,
) -> Result<(), Box<dyn Error>> {
    let threads = std::env::var("MILLRACE_THREADS").map_or(Ok(2), |threads| threads.parse())?;
    let gguf = Gguf::open(mmproj)?;
    let config = VisionConfig::from_gguf(&gguf)?;
    let mut pool = Pool::new(threads);
    let tower = Tower::load(gguf, config, (Isa::detect(), &mut pool), &mut |_| {})?;
    let view = first_view(&tower, size)?;
    let mut tower = TowerAlone::new(tower, pool);
    let (mut all, mut longest, mut units) = (Vec::new(), 0.0f64, 0);
    let mut used = 0.0;
    for round in 0..=rounds {
        let input: EncoderInput = Arc::clone(&view) as EncoderInput;
        units = tower.begin(&input)?;
        let mut seconds = 0.0;
        if round == 1 {
            used = processor_seconds()?;
        }
        for _ in 0..units {
            #[expect(clippy::disallowed_methods, reason = "a measurement")]
            let begin = Instant::now();
            let rows = tower.advance()?;
            let unit = begin.elapsed().as_secs_f64();
            (seconds, longest) = (seconds + unit, longest.max(unit));
            if let (Some(rows), Some(file), true) = (rows, rows_file, round == rounds) {
                let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
                std::fs::write(file, bytes)?;
            }
        }
        all.push(seconds);
    }
    all.remove(0);
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2).ok_or("at least one round")?;
    let rows = view.rows;
    let mean = median / units as f64 * 1e3;
    let longest = longest * 1e3;
    let used = (processor_seconds()? - used) / rounds.max(1) as f64;
    writeln!(
        std::io::stdout(),
        "{{\"rows\":{rows},\"patches\":{},\"units\":{units},\"seconds\":{median:.3},\"processor_seconds\":{used:.3},\"unit_ms\":{mean:.1},\"longest_ms\":{longest:.1}}}",
        view.patches.count()
    )?;
    Ok(())
}

/// Processor time of this process, on all threads: other load does not count. Steps of 10 ms.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?;
    let mut ticks = 0.0;
    for field in fields.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<f64>()?;
    }
    Ok(ticks / 100.0)
}

/// A tower in the shape of published models, with so many layers.
fn spec(shape: &str, format: &str, layers: u32) -> Result<VisionSpec, Box<dyn Error>> {
    let (projector, dim, heads, ffn, patch, image, merge, projection_dim) = match shape {
        "siglip-b" => ("idefics3", 768, 12, 3072, 16, 512, 4, 576),
        "gemma3" => ("gemma3", 1152, 16, 4304, 14, 896, 4, 2560),
        "qwen3vl" => ("qwen3vl_merger", 1152, 16, 4304, 16, 768, 2, 2560),
        "pixtral" => ("pixtral", 1024, 16, 4096, 16, 1024, 2, 5120),
        _ => return Err("no such shape: siglip-b, gemma3, qwen3vl or pixtral".into()),
    };
    let mix = match format {
        // Q8_0 where rows are whole blocks, as quantizers write it: those of 4304 stay F16.
        "Q8_0" => Mix::MXFP4_MOE,
        _ => Mix::from_name(format).ok_or("no such format")?,
    };
    let preset = VisionSpec::preset(&format!("small-{projector}")).ok_or("no such preset")?;
    let deepstack = match projector {
        "qwen3vl_merger" => [8, 16, 24].into_iter().filter(|at| *at < layers).collect(),
        _ => Vec::new(),
    };
    Ok(VisionSpec {
        dim,
        layers,
        heads,
        ffn,
        patch,
        image,
        longest_edge: 2 * image,
        merge,
        projection_dim,
        deepstack,
        mix,
        ..preset
    })
}

fn first_view(tower: &Tower, size: Size) -> Result<Arc<View>, Box<dyn Error>> {
    let recipe = &tower.config().recipe;
    let plan = recipe.plan(size, Detail::High)?;
    let levels = (0..size.rgb_bytes()).map(|at| (at * 31 % 251) as u8);
    let views = recipe.inputs(&plan, &Pixels::new(size, levels.collect()));
    Ok(views.into_iter().next().ok_or("no view")?)
}
