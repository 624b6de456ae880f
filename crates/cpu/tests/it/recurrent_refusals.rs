//! Folders of models with a scan in their layers that are refused: one line names the tensor or the field, and the bound.

use crate::recurrent_classes::{
    FALCON, FALCON_CLASS, GRANITE, GRANITE_CLASS, MAMBA2, MAMBA2_CLASS, NEMOTRON, NEMOTRON_CLASS,
    NEXT, NEXT_CLASS, QWEN35, QWEN35_CLASS, load,
};
use crate::support::recurrent_configs::merge;
use crate::support::saved_recurrent::{SavedModel, save};
use serde_json::{Value, json};
use weights::safetensors::Safetensors;

fn refused(model: &SavedModel) -> String {
    let opened = Safetensors::open(&model.saved.folder, None);
    opened.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn missing_tensors_are_named_as_stored() {
    for (line, class, part) in [
        (QWEN35, QWEN35_CLASS, "model.layers.1.linear_attn.A_log"),
        (
            QWEN35,
            QWEN35_CLASS,
            "model.layers.1.linear_attn.in_proj_z.weight",
        ),
        (
            NEXT,
            NEXT_CLASS,
            "model.layers.0.linear_attn.in_proj_ba.weight",
        ),
        (
            NEXT,
            NEXT_CLASS,
            "model.layers.0.mlp.shared_expert_gate.weight",
        ),
        (
            GRANITE,
            GRANITE_CLASS,
            "model.layers.0.shared_mlp.input_linear.weight",
        ),
        (
            "x preset=tiny-granite mix=F32",
            GRANITE_CLASS,
            "model.layers.0.shared_mlp.output_linear.weight",
        ),
        (GRANITE, GRANITE_CLASS, "model.layers.0.mamba.dt_bias"),
        (
            FALCON,
            FALCON_CLASS,
            "model.layers.1.pre_ff_layernorm.weight",
        ),
        (FALCON, FALCON_CLASS, "model.layers.0.mamba.norm.weight"),
        (MAMBA2, MAMBA2_CLASS, "backbone.layers.1.mixer.D"),
        (
            NEMOTRON,
            NEMOTRON_CLASS,
            "backbone.layers.1.mixer.up_proj.weight",
        ),
    ] {
        let mut model = save(line, class);
        let before = model.tensors.len();
        model.tensors.retain(|tensor| tensor.name != part);
        assert_eq!(model.tensors.len() + 1, before, "{part}");
        model.saved.put_weights(&model.tensors, 1);
        let why = match Safetensors::open(&model.saved.folder, None) {
            Err(why) => why.to_string(),
            Ok(files) => load(files, false).map(|_| ()).unwrap_err().to_string(),
        };
        assert!(why.contains(part) && !why.contains('\n'), "{part}: {why}");
    }
}

/// A model, its class, a tensor, a shape that it must not have, and words of the error.
type ShapeRow = (
    &'static str,
    &'static str,
    &'static str,
    &'static [u64],
    &'static str,
);

#[rustfmt::skip]
const SHAPES: [ShapeRow; 12] = [
    (QWEN35, QWEN35_CLASS, "model.layers.0.linear_attn.A_log", &[5], "must have 4"),
    (QWEN35, QWEN35_CLASS, "model.layers.0.linear_attn.in_proj_qkv.weight", &[96, 64], "must have 128"),
    (QWEN35, QWEN35_CLASS, "model.layers.0.linear_attn.out_proj.weight", &[64, 96], "must have 64"),
    (QWEN35, QWEN35_CLASS, "model.layers.0.linear_attn.conv1d.weight", &[128, 4], "three dimensions"),
    (QWEN35, QWEN35_CLASS, "model.layers.0.linear_attn.conv1d.weight", &[128, 2, 4], "1 in the middle"),
    (NEXT, NEXT_CLASS, "model.layers.0.linear_attn.in_proj_qkvz.weight", &[128, 64], "in_proj_qkvz"),
    (NEXT, NEXT_CLASS, "model.layers.0.linear_attn.A_log", &[2, 2], "A_log"),
    (GRANITE, GRANITE_CLASS, "model.layers.0.shared_mlp.input_linear.weight", &[127, 64], "an even number of rows"),
    (GRANITE, GRANITE_CLASS, "model.layers.0.mamba.norm.weight", &[127], "a multiple of the 2 groups"),
    (FALCON, FALCON_CLASS, "model.layers.0.mamba.in_proj.weight", &[64, 64], "mamba.in_proj"),
    (MAMBA2, MAMBA2_CLASS, "backbone.layers.0.mixer.in_proj.weight", &[64, 64], "mixer.in_proj"),
    (NEMOTRON, NEMOTRON_CLASS, "backbone.layers.0.mixer.D", &[9], "mixer.D"),
];

#[test]
fn tensors_of_another_shape_are_named_with_the_shape() {
    for (line, class, part, shape, wanted) in SHAPES {
        let mut model = save(line, class);
        let mut all = model.tensors.iter_mut();
        let tensor = all.find(|tensor| tensor.name == part).unwrap();
        tensor.shape = shape.to_vec();
        tensor.bytes = vec![0; 4 * shape.iter().product::<u64>() as usize];
        model.saved.put_weights(&model.tensors, 1);
        let why = match Safetensors::open(&model.saved.folder, None) {
            Err(why) => why.to_string(),
            Ok(files) => load(files, false).map(|_| ()).unwrap_err().to_string(),
        };
        let is_named = why.contains(part) && why.contains(wanted);
        assert!(is_named && !why.contains('\n'), "{part}: {why}");
    }
}

#[test]
#[rustfmt::skip]
fn fields_out_of_bounds_are_named() {
    let many = json!(u32::MAX);
    let rows: Vec<(&str, &str, Value, &str)> = vec![
        (QWEN35, QWEN35_CLASS, json!({"linear_value_head_dim": 32}), "`linear_value_head_dim` is 32, must be 16"),
        (QWEN35, QWEN35_CLASS, json!({"linear_num_key_heads": 3}), "linear_num_value_heads` is 4, must be a multiple of 3"),
        (QWEN35, QWEN35_CLASS, json!({"linear_num_value_heads": many}), "linear_num_value_heads` is 4294967295"),
        (QWEN35, QWEN35_CLASS, json!({"linear_conv_kernel_dim": 1}), "linear_conv_kernel_dim` is 1"),
        (QWEN35, QWEN35_CLASS, json!({"linear_key_head_dim": null}), "`linear_key_head_dim` is missing"),
        (QWEN35, QWEN35_CLASS, json!({"layer_types": ["full_attention"]}), "layer_types` is 1"),
        (QWEN35, QWEN35_CLASS, json!({"layer_types": ["mamba"]}), "`layer_types` has mamba"),
        (QWEN35, QWEN35_CLASS, json!({"num_hidden_layers": many}), "num_hidden_layers` is 4294967295"),
        (QWEN35, QWEN35_CLASS, json!({"mtp_num_hidden_layers": 512}), "`mtp_num_hidden_layers` is 512, must be less than 512"),
        (QWEN35, QWEN35_CLASS, json!({"attn_output_gate": false}), "`attn_output_gate` is false"),
        (QWEN35, QWEN35_CLASS, json!({"attention_bias": true}), "`attention_bias` is true"),
        (QWEN35, QWEN35_CLASS, json!({"rope_parameters": {"partial_rotary_factor": 1.5}}), "partial_rotary_factor"),
        (QWEN35, QWEN35_CLASS, json!({"quantization_config": {"quant_method": "fp8"}}), "`quantization_config`"),
        (NEXT, NEXT_CLASS, json!({"norm_topk_prob": false}), "norm_topk_prob"),
        (NEXT, NEXT_CLASS, json!({"mlp_only_layers": [0]}), "`mlp_only_layers` names layers"),
        (GRANITE, GRANITE_CLASS, json!({"layer_types": null}), "`layer_types` is missing"),
        (GRANITE, GRANITE_CLASS, json!({"layer_types": ["mamba", "attention"]}), "`layer_types` has 2 layers, must have 4"),
        (GRANITE, GRANITE_CLASS, json!({"mamba_d_head": 48}), "`mamba_d_head` is 48, must give 128 elements"),
        (GRANITE, GRANITE_CLASS, json!({"mamba_proj_bias": true}), "`mamba_proj_bias` is true"),
        (GRANITE, GRANITE_CLASS, json!({"mamba_n_groups": 0}), "mamba_n_groups` is 0"),
        (GRANITE, GRANITE_CLASS, json!({"position_embedding_type": "alibi"}), "`position_embedding_type` is alibi"),
        (GRANITE, GRANITE_CLASS, json!({"logits_scaling": 0}), "logits_scaling"),
        (FALCON, FALCON_CLASS, json!({"ssm_multipliers": [1.0, 1.0]}), "`ssm_multipliers` has 2 numbers, must have 5"),
        (FALCON, FALCON_CLASS, json!({"key_multiplier": 1e9}), "`key_multiplier` has 1000000000, must be -1000000 to 1000000"),
        (FALCON, FALCON_CLASS, json!({"mamba_norm_before_gate": true}), "`mamba_norm_before_gate` is not false"),
        (FALCON, FALCON_CLASS, json!({"projectors_bias": true}), "`projectors_bias` is true"),
        (FALCON, FALCON_CLASS, json!({"mamba_d_state": many}), "mamba_d_state` is 4294967295"),
        (MAMBA2, MAMBA2_CLASS, json!({"expand": 3}), "`expand` is 3, must give 128 elements"),
        (MAMBA2, MAMBA2_CLASS, json!({"num_heads": null}), "`num_heads` is missing"),
        (MAMBA2, MAMBA2_CLASS, json!({"n_groups": 3}), "num_heads` is 4, must be a multiple of 3"),
        (MAMBA2, MAMBA2_CLASS, json!({"time_step_limit": [0.001, 0.1]}), "`time_step_limit` must be 0 to Infinity"),
        (MAMBA2, MAMBA2_CLASS, json!({"use_bias": true}), "`use_bias` is true"),
        (NEMOTRON, NEMOTRON_CLASS, json!({"hybrid_override_pattern": "M-E*"}), "`hybrid_override_pattern` has E"),
        (NEMOTRON, NEMOTRON_CLASS, json!({"hybrid_override_pattern": null}), "`layers_block_type` is missing"),
        (NEMOTRON, NEMOTRON_CLASS, json!({"mlp_hidden_act": "silu"}), "`mlp_hidden_act` is silu, must be relu2"),
        (NEMOTRON, NEMOTRON_CLASS, json!({"mamba_head_dim": many}), "mamba_head_dim"),
    ];
    for (line, class, change, wanted) in rows {
        let model = save(line, class);
        let mut config = model.config.clone();
        merge(&mut config, &change);
        model.saved.put("config.json", config.to_string().as_bytes());
        let why = refused(&model);
        assert!(why.contains(wanted) && why.contains("config.json") && !why.contains('\n'), "{change}: {why}");
    }
}
