//! A model of gpt-oss as OpenAI saved it: experts in blocks beside scales, gate and up projection in turns.

use super::saved::{Stored, name};
use weights::Architecture;
use weights::gguf::{Gguf, TensorInfo};

/// The weights of a GGUF whose experts are stored as MXFP4.
pub(crate) fn stored(gguf: &Gguf) -> Vec<Stored> {
    gguf.tensors()
        .flat_map(|tensor| match tensor.name {
            "token_embd.weight" | "output_norm.weight" | "output.weight" => {
                vec![plain(&tensor, name(Architecture::GptOss, tensor.name))]
            }
            _ => in_layer(gguf, &tensor),
        })
        .collect()
}

fn in_layer(gguf: &Gguf, tensor: &TensorInfo<'_>) -> Vec<Stored> {
    let (layer, part) = tensor.name["blk.".len()..].split_once('.').unwrap();
    let other = |part: &str| gguf.tensor(&format!("blk.{layer}.{part}")).unwrap();
    let named = |part: &str| format!("model.layers.{layer}.{part}");
    match part {
        "attn_sinks.weight" => vec![plain(tensor, named("self_attn.sinks"))],
        "ffn_gate_exps.weight" => {
            let both = [tensor, &other("ffn_up_exps.weight")];
            blocks(&both, &named("mlp.experts.gate_up_proj"))
        }
        "ffn_down_exps.weight" => blocks(&[tensor], &named("mlp.experts.down_proj")),
        "ffn_gate_exps.bias" => {
            let up = other("ffn_up_exps.bias");
            let mut both = plain(tensor, named("mlp.experts.gate_up_proj_bias"));
            let pairs = tensor.bytes.chunks(4).zip(up.bytes.chunks(4));
            both.bytes = pairs.flat_map(|(gate, up)| [gate, up].concat()).collect();
            both.shape[1] *= 2;
            vec![both]
        }
        "ffn_down_exps.bias" => vec![plain(tensor, named("mlp.experts.down_proj_bias"))],
        "ffn_up_exps.weight" | "ffn_up_exps.bias" => Vec::new(),
        _ => vec![plain(tensor, name(Architecture::GptOss, tensor.name))],
    }
}

fn plain(tensor: &TensorInfo<'_>, name: String) -> Stored {
    Stored {
        name,
        dtype: tensor.kind.to_string(),
        shape: tensor.dims.iter().rev().copied().collect(),
        bytes: tensor.bytes.to_vec(),
    }
}

/// The blocks and the scales of projections whose rows are stored in turns.
fn blocks(projections: &[&TensorInfo<'_>], name: &str) -> Vec<Stored> {
    let [cols, rows, count] = *projections[0].dims else {
        panic!("{name}");
    };
    let row_bytes = cols as usize / 32 * 17;
    let (mut numbers, mut scales) = (Vec::new(), Vec::new());
    for row in 0..(rows * count) as usize {
        for projection in projections {
            for block in projection.bytes[row * row_bytes..][..row_bytes].chunks(17) {
                let number = |i: usize| block[1 + i % 16] >> (i / 16 * 4) & 15;
                scales.push(block[0]);
                numbers.extend((0..16).map(|i| number(2 * i) | number(2 * i + 1) << 4));
            }
        }
    }
    let rows = rows * projections.len() as u64;
    let part = |kind: &str, shape: &[u64], bytes| Stored {
        name: format!("{name}_{kind}"),
        dtype: "U8".to_owned(),
        shape: shape.to_vec(),
        bytes,
    };
    vec![
        part("blocks", &[count, rows, cols / 32, 16], numbers),
        part("scales", &[count, rows, cols / 32], scales),
    ]
}
