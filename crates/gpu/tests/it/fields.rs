//! Every field of the configuration is read by the program, refused, or known to concern the loading alone.

const CONFIG: &str = include_str!("../../../weights/src/config/mod.rs");
const TRAITS: &str = include_str!("../../../weights/src/config/traits.rs");
/// Everything that computes or refuses.
const READERS: [&str; 11] = [
    include_str!("../../src/model.rs"),
    include_str!("../../src/program/mod.rs"),
    include_str!("../../src/program/attention.rs"),
    include_str!("../../src/program/dense.rs"),
    include_str!("../../src/program/experts.rs"),
    include_str!("../../src/program/latent.rs"),
    include_str!("../../src/program/recurrent.rs"),
    include_str!("../../src/program/head.rs"),
    include_str!("../../src/program/per_layer.rs"),
    include_str!("../../src/step.rs"),
    include_str!("../../src/supports.rs"),
];

/// Fields of [`weights::Config`] that others are made of: computations read those.
const OF_CONFIG: [&str; 8] = [
    "architecture",
    "layers",
    "layers_ignored",
    "hidden",
    "kv_heads",
    "head_dim",
    "context_trained",
    "context_max",
];

/// Fields of `Traits` that are read where the configuration or the weights are: what they decide is a field of `Config`, or
/// a parameter that is there or not.
const OF_LOADING: [&str; 33] = [
    "axes",
    "blocks",
    "pairs",
    "sections_in_halves",
    "alpha",
    "gate",
    "gated",
    "experts",
    "shared_gate",
    "expert_biases",
    "sinks",
    "windows",
    "factors",
    "roped",
    "gated_attention",
    "latent",
    "recurrent",
    "layer_norms",
    "pre_norms",
    "post_norms",
    "feed",
    "output_norm",
    "feed_norm",
    "bare_feed_norm",
    "scaled_embedding",
    "multipliers",
    "logit_scale",
    "fused_gate_up",
    "attention_cap",
    "logit_cap",
    "local_rope",
    "layers_scaled_by_dim",
    "unscaled_scores",
];

/// Fields of `Traits` that weights of a described model carry.
const OF_WEIGHTS: [&str; 6] = [
    "value_norm",
    "layers_differ",
    "kv_sharing",
    "per_layer",
    "dense_beside_experts",
    "state_head",
];

/// Names of the public fields of a struct.
fn fields(source: &'static str, name: &str) -> Vec<&'static str> {
    let start = source
        .find(&format!("pub struct {name} {{"))
        .expect("the struct");
    let end = source[start..].find("\n}").expect("its end");
    let lines = source[start..start + end].lines();
    let lines = lines.filter_map(|line| line.trim().strip_prefix("pub "));
    let names = lines.filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name).collect()
}

fn is_read(field: &str) -> bool {
    let boundary = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    READERS.iter().any(|source| {
        let dotted = format!(".{field}");
        let mut places = source.match_indices(&dotted);
        let destructured =
            source.contains(&format!("{field}, ")) && source.contains("let Traits {");
        places.any(|(at, found)| boundary(&source[at + found.len()..])) || destructured
    })
}

#[test]
fn each_field_of_the_configuration_is_read_or_refused() {
    let config = fields(CONFIG, "Config");
    assert!(config.contains(&"attention_cap") && config.len() > 20);
    for field in &config {
        let known = OF_CONFIG.contains(field);
        assert!(is_read(field) || known, "{field} of Config is not read");
    }
    let traits = fields(TRAITS, "Traits");
    assert!(traits.contains(&"sinks") && traits.len() > 30);
    for field in &traits {
        let known = OF_LOADING.contains(field) || OF_WEIGHTS.contains(field);
        assert!(is_read(field) || known, "{field} of Traits is not read");
    }
    let lists = OF_LOADING.iter().chain(&OF_WEIGHTS);
    for field in lists {
        assert!(traits.contains(field), "{field} is no field any more");
    }
    for field in OF_CONFIG {
        assert!(config.contains(&field), "{field} is no field any more");
    }
}
