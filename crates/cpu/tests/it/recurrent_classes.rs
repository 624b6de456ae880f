//! Classes of transformers with a scan in their layers: equal weights as GGUF give equal logits.
//!
//! Promise (Arithmetic): safetensors of models with recurrent layers (Qwen 3 Next, Qwen 3.5 with and without experts
//! and with its MTP head, Granite 4, Falcon H1, Mamba-2, Nemotron H) give the bits of a GGUF with the same weights,
//! in F32, F16 and BF16; errors name the tensor or field and the bound.
//! Also held by `cpu/tests/it/recurrent_refusals.rs`, `tools/oracle/saved_recurrent.py`.

use crate::support::recurrent_configs::merge;
use crate::support::saved_recurrent::{SavedModel, save};
use crate::support::{ids, logits, options, pages};
use cpu::{LoadOptions, Model};
use kernels::{Isa, Pool};
use model::{Batch, Forward, Predict, SpanStates, Want};
use serde_json::json;
use weights::gguf::{Gguf, Value};
use weights::safetensors::{Quantize, Safetensors};
use weights::{LoadError, ModelFiles};

pub(crate) const QWEN35: &str = "x preset=tiny-qwen35 mix=F32";
pub(crate) const QWEN35_CLASS: &str = "Qwen3_5ForCausalLM";
pub(crate) const NEXT: &str = "x preset=tiny-qwen3next mix=F32";
pub(crate) const NEXT_CLASS: &str = "Qwen3NextForCausalLM";
pub(crate) const MOE_CLASS: &str = "Qwen3_5MoeForConditionalGeneration";
pub(crate) const GRANITE: &str = "x preset=tiny-granitehybrid mix=F32";
pub(crate) const GRANITE_CLASS: &str = "GraniteMoeHybridForCausalLM";
pub(crate) const FALCON: &str = "x preset=tiny-falcon-h1 mix=F32";
pub(crate) const FALCON_CLASS: &str = "FalconH1ForCausalLM";
/// The context of a file whose `config.json` names none.
pub(crate) const MAMBA2: &str = "x preset=tiny-mamba2 mix=F32 trained=1048576";
pub(crate) const MAMBA2_CLASS: &str = "Mamba2ForCausalLM";
pub(crate) const NEMOTRON: &str = "x preset=tiny-nemotron_h mix=F32";
pub(crate) const NEMOTRON_CLASS: &str = "NemotronHForCausalLM";

/// A model of every class, in f32.
const ALL: [(&str, &str); 8] = [
    (QWEN35, QWEN35_CLASS),
    (NEXT, NEXT_CLASS),
    ("x preset=tiny-qwen35moe mix=F32", MOE_CLASS),
    (GRANITE, GRANITE_CLASS),
    ("x preset=tiny-granitehybrid-moe mix=F32", GRANITE_CLASS),
    (FALCON, FALCON_CLASS),
    (MAMBA2, MAMBA2_CLASS),
    (NEMOTRON, NEMOTRON_CLASS),
];

/// Loads opened files, with small bounds.
pub(crate) fn load(files: impl Into<ModelFiles>, mtp: bool) -> Result<Model, LoadError> {
    let options = LoadOptions {
        mtp,
        ..options(Some(256))
    };
    let (isa, pool) = (Isa::detect(), Pool::new(2));
    Model::load(files, isa, pool, &options, &mut |_| {})
}

/// Opens a folder that is valid.
pub(crate) fn open(model: &SavedModel) -> Safetensors {
    Safetensors::open(&model.saved.folder, None).unwrap_or_else(|why| panic!("{why}"))
}

fn check(line: &str, class: &str) {
    let model = save(line, class);
    let mut gguf = load(Gguf::from_bytes(model.twin.clone()).unwrap(), false).unwrap();
    let other = load(open(&model), false);
    let mut other = other.unwrap_or_else(|why| panic!("{class}, {line}: {why}"));
    assert_eq!(gguf.config(), other.config(), "{class}, {line}");
    let prompt = ids(3, 80, gguf.dims().vocab);
    assert!(
        logits(&mut gguf, &prompt, 0) == logits(&mut other, &prompt, 0),
        "{class}, {line}: other logits"
    );
}

#[test]
fn safetensors_of_every_class_equal_gguf() {
    for (line, class) in ALL {
        check(line, class);
        for mix in ["F16", "BF16"] {
            check(&line.replace("mix=F32", &format!("mix={mix}")), class);
        }
    }
}

#[test]
fn safetensors_of_other_shapes_equal_gguf() {
    for (line, class) in [
        (QWEN35, "Qwen3_5ForConditionalGeneration"),
        ("x preset=tiny-qwen35moe mix=F32", "Qwen3_5MoeForCausalLM"),
        // As many value heads as key heads, and four for each.
        ("x preset=tiny-qwen35 mix=F32 key_heads=4", QWEN35_CLASS),
        (
            "x preset=tiny-qwen35 mix=F32 key_heads=2 value_heads=8",
            QWEN35_CLASS,
        ),
        (
            "x preset=tiny-qwen35 mix=F32 tied=false period_recurrent=2",
            QWEN35_CLASS,
        ),
        (
            "x preset=tiny-qwen3next mix=F32 key_heads=1 taps=3",
            NEXT_CLASS,
        ),
        (
            "x preset=tiny-granitehybrid mix=F32 key_heads=1",
            GRANITE_CLASS,
        ),
        (
            "x preset=tiny-falcon-h1 mix=F32 recurrent_norm=false",
            FALCON_CLASS,
        ),
        // Models of Granite 4's class without recurrent layers.
        ("x preset=tiny-granite mix=F32", GRANITE_CLASS),
        ("x preset=tiny-granitemoe mix=BF16", GRANITE_CLASS),
    ] {
        check(line, class);
    }
}

#[test]
fn mtp_heads_equal_those_of_gguf() {
    for (line, class) in [
        (QWEN35, QWEN35_CLASS),
        ("x preset=tiny-qwen35moe mix=F32", MOE_CLASS),
    ] {
        let line = format!("{line} mtp=true");
        check(&line, class);
        let model = save(&line, class);
        let mut gguf = load(Gguf::from_bytes(model.twin.clone()).unwrap(), true).unwrap();
        let mut other = load(open(&model), true).unwrap();
        let prompt = ids(9, 41, gguf.dims().vocab);
        assert!(
            guess(&mut gguf, &prompt) == guess(&mut other, &prompt),
            "{class}"
        );
        // A file may have a head that the configuration does not name: `save_pretrained` leaves it out.
        let mut config = model.config.clone();
        let fields = if config.get("text_config").is_some() {
            &mut config["text_config"]
        } else {
            &mut config
        };
        fields["mtp_num_hidden_layers"] = json!(0);
        model
            .saved
            .put("config.json", config.to_string().as_bytes());
        load(open(&model), false).unwrap();
    }
}

/// Ids that the MTP head guesses after the last id.
fn guess(model: &mut Model, ids: &[u32]) -> Vec<u32> {
    let (last, before) = ids.split_last().unwrap();
    let mut batch = Batch::default();
    batch.push(before, 0, &pages(0, before.len()), Want::None);
    batch.set_states(Some(SpanStates::new(None, 0)));
    model.forward(&batch).unwrap();
    batch.clear();
    batch.push(&[*last], before.len(), &pages(0, ids.len()), Want::Last);
    batch.set_states(Some(SpanStates::new(Some(0), 15)));
    let row = model.predict(&batch).unwrap();
    row.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn tied_falcon_has_a_projection_of_its_own_factor() {
    let model = save("x preset=tiny-falcon-h1 mix=F32 tied=true", FALCON_CLASS);
    let mut gguf = load(Gguf::from_bytes(model.twin.clone()).unwrap(), false).unwrap();
    let mut other = load(open(&model), false).unwrap();
    let prompt = ids(3, 20, gguf.dims().vocab);
    // The factor of the embedding, within the GGUF's, is twice that of the projection.
    let mut wanted = logits(&mut gguf, &prompt, 0);
    for logit in wanted.iter_mut().flatten() {
        *logit *= 0.5;
    }
    assert!(logits(&mut other, &prompt, 0) == wanted);
}

/// Factors decide the weights, so that they must be among what a model's identity is made of.
#[test]
fn factors_of_falcon_are_among_the_keys() {
    let factors = |model: &SavedModel| match open(model).metadata().get("falcon-h1.weight_factors")
    {
        Some(Value::Array(factors)) => factors.encoded().to_vec(),
        _ => panic!("no factors"),
    };
    let model = save(FALCON, FALCON_CLASS);
    let before = factors(&model);
    for (field, value) in [
        ("lm_head_multiplier", json!(0.5)),
        ("ssm_multipliers", json!([0.5, 0.25, 1.0, 0.125, 0.25])),
    ] {
        let mut config = model.config.clone();
        config[field] = value;
        model
            .saved
            .put("config.json", config.to_string().as_bytes());
        assert_ne!(factors(&model), before, "{field}");
    }
}

#[test]
fn models_of_every_class_can_be_quantized_at_load() {
    for (line, class) in ALL {
        let model = save(line, class);
        for quantize in [Quantize::Q8_0, Quantize::Q4_K] {
            let files = Safetensors::open(&model.saved.folder, Some(quantize)).unwrap();
            let loaded = load(files, false);
            let mut loaded = loaded.unwrap_or_else(|why| panic!("{class}, {quantize:?}: {why}"));
            let prompt = ids(3, 5, loaded.dims().vocab);
            let rows = logits(&mut loaded, &prompt, 0);
            assert!(rows.iter().flatten().all(|logit| logit.is_finite()));
        }
    }
}

#[test]
fn fields_may_have_other_names_or_values_of_the_same_meaning() {
    let rows = [
        (
            NEMOTRON,
            NEMOTRON_CLASS,
            json!({"hybrid_override_pattern": null, "num_hidden_layers": null, "layers_block_type":
                ["linear_attention", "mlp", "linear_attention", "full_attention", "linear_attention", "mlp"]}),
        ),
        (QWEN35, QWEN35_CLASS, json!({"layer_types": null})),
        (
            QWEN35,
            QWEN35_CLASS,
            json!({"layer_types": null, "full_attention_interval": 4}),
        ),
        (
            QWEN35,
            QWEN35_CLASS,
            json!({
                "rope_parameters": null, "rope_theta": 10_000.0,
                "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]},
            }),
        ),
        (
            GRANITE,
            GRANITE_CLASS,
            json!({"mamba_d_head": "auto", "mamba_expand": null}),
        ),
        (FALCON, FALCON_CLASS, json!({"mamba_d_ssm": null})),
    ];
    for (line, class, change) in rows {
        let model = save(line, class);
        let mut config = model.config.clone();
        let wanted = open(&model).config(None).unwrap();
        merge(&mut config, &change);
        model
            .saved
            .put("config.json", config.to_string().as_bytes());
        assert_eq!(open(&model).config(None).unwrap(), wanted, "{change}");
    }
}

#[test]
fn infinite_steps_are_read_as_python_writes_them() {
    let model = save(MAMBA2, MAMBA2_CLASS);
    let mut config = model.config.clone();
    config["time_step_limit"] = json!([0.0, "STEP"]);
    let text = config.to_string().replace("\"STEP\"", "Infinity");
    model.saved.put("config.json", text.as_bytes());
    open(&model);
}

#[test]
fn queries_of_granite_are_not_rotated_unless_a_field_says_so() {
    let model = save(GRANITE, GRANITE_CLASS);
    for (value, roped) in [
        (json!("rope"), true),
        (json!(null), false),
        (json!("nope"), false),
    ] {
        let mut config = model.config.clone();
        config["position_embedding_type"] = value;
        model
            .saved
            .put("config.json", config.to_string().as_bytes());
        let config = open(&model).config(None).unwrap();
        assert!(config.roped.iter().all(|found| *found == roped));
    }
}
