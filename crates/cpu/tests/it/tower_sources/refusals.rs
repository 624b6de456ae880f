//! Folders with a tower that is not computed, or with a field or tensor that does not fit.

use super::*;

type Change = fn(&mut Value, &mut Value, &mut Vec<Stored>);

/// Promise (Hostile input and memory): a folder or a model's file with a tower that is not computed, or with a field or tensor
/// that does not fit, is refused with its name.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_does_not_fit_is_named() {
    let rows: [(&str, &str, Change); 17] = [
        (
            "idefics3",
            "projector mllama is not computed",
            |config, _, _| {
                config["architectures"] = json!(["MllamaForConditionalGeneration"]);
            },
        ),
        (
            "idefics3",
            "projector llama4 is not computed",
            |config, _, _| {
                config["architectures"] = json!(["Llama4ForConditionalGeneration"]);
            },
        ),
        ("idefics3", "no tower", |config, _, _| {
            config["architectures"] = json!(["LlamaForCausalLM"]);
        }),
        ("idefics3", "`vision_config` is missing", |config, _, _| {
            config["vision_config"] = Value::Null;
        }),
        (
            "idefics3",
            "vision_config.num_attention_heads` is 7",
            |config, _, _| {
                config["vision_config"]["num_attention_heads"] = json!(7);
            },
        ),
        (
            "idefics3",
            "`vision_config.hidden_act` is gelu_new",
            |config, _, _| {
                config["vision_config"]["hidden_act"] = json!("gelu_new");
            },
        ),
        (
            "idefics3",
            "vision_config.num_hidden_layers` is 4294967295",
            |config, _, _| {
                config["vision_config"]["num_hidden_layers"] = json!(u32::MAX);
            },
        ),
        (
            "idefics3",
            "`max_image_size.longest_edge` is 32, must be 64",
            |_, processor, _| {
                processor["max_image_size"]["longest_edge"] = json!(32);
            },
        ),
        (
            "idefics3",
            "`image_std` has 2 numbers",
            |_, processor, _| {
                processor["image_std"] = json!([0.5, 0.5]);
            },
        ),
        (
            "idefics3",
            "`text_config.hidden_size` is missing",
            |config, _, _| {
                config["text_config"]["hidden_size"] = json!("wide");
            },
        ),
        (
            "idefics3",
            "post_layernorm.bias` is missing",
            |_, _, tensors| {
                tensors.retain(|tensor| !tensor.name.ends_with("post_layernorm.bias"));
            },
        ),
        (
            "idefics3",
            "`model.vision_model.odd.weight` has no part in a tower idefics3",
            |_, _, tensors| {
                let mut odd = tensors[0].clone();
                odd.name = "model.vision_model.odd.weight".to_owned();
                tensors.push(odd);
            },
        ),
        ("gemma3", "`mm_tokens_per_image` is 15", |config, _, _| {
            config["mm_tokens_per_image"] = json!(15);
        }),
        (
            "gemma3",
            "`size.height` is 32, must be 64",
            |_, processor, _| {
                processor["size"]["height"] = json!(32);
            },
        ),
        (
            "qwen3vl",
            "`vision_config.num_position_embeddings` is 35",
            |config, _, _| {
                config["vision_config"]["num_position_embeddings"] = json!(35);
            },
        ),
        (
            "qwen3vl",
            "`vision_config.deepstack_visual_indexes` is [2, 1]",
            |config, _, _| {
                config["vision_config"]["deepstack_visual_indexes"] = json!([2, 1]);
            },
        ),
        (
            "qwen3vl",
            "patch_embed.proj.weight` has 1 channels",
            |_, _, tensors| {
                for tensor in tensors
                    .iter_mut()
                    .filter(|tensor| tensor.name.ends_with("patch_embed.proj.weight"))
                {
                    let dims = [tensor.shape[0] * 3, 1, 2, 8, 8];
                    tensor.shape = dims.to_vec();
                }
            },
        ),
    ];
    check(&rows);
}

fn check(rows: &[(&str, &str, Change)]) {
    for (name, part, change) in rows {
        let (mut config, mut processor) = configs(name);
        let mut tensors = saved_tensors(name, FORMATS[1]);
        change(&mut config, &mut processor, &mut tensors);
        let folder = saved(name, &tensors, &(config, processor));
        let said = open(&folder).and_then(tower_of).err().expect(part);
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Leaves out the tensors whose names contain this.
fn without(tensors: &mut Vec<Stored>, part: &str) {
    tensors.retain(|tensor| !tensor.name.contains(part));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_does_not_fit_in_towers_of_llava_and_mistral_is_named() {
    let rows: [(&str, &str, Change); 30] = [
        (
            "llava",
            "`vision_config.model_type` is dinov2, must be clip_vision_model or siglip_vision_model or pixtral",
            |config, _, _| {
                config["vision_config"]["model_type"] = json!("dinov2");
            },
        ),
        (
            "llava-next",
            "`vision_config.model_type` is pixtral, must be clip_vision_model or siglip_vision_model",
            |config, _, _| {
                config["vision_config"]["model_type"] = json!("pixtral");
            },
        ),
        ("llava", "`vision_config` is missing", |config, _, _| {
            config["vision_config"] = Value::Null;
        }),
        (
            "llava",
            "`vision_feature_layer` is -4, must be layers of 1 to 3 or -3 to -1",
            |config, _, _| {
                config["vision_feature_layer"] = json!(-4);
            },
        ),
        (
            "llava",
            "`vision_feature_layer` is [-2,4], must be layers of 0 to 3",
            |config, _, _| {
                config["vision_feature_layer"] = json!([-2, 4]);
            },
        ),
        (
            "llava",
            "multi_modal_projector.linear_1.weight",
            |config, _, _| {
                config["vision_feature_layer"] = json!([-2, -1]);
            },
        ),
        (
            "llava-siglip",
            "`vision_feature_select_strategy` is default, must be full",
            |config, _, _| {
                config["vision_feature_select_strategy"] = Value::Null;
            },
        ),
        (
            "llava-siglip",
            "`vision_config.hidden_act` is gelu, must be gelu_pytorch_tanh",
            |config, _, _| {
                config["vision_config"]["hidden_act"] = json!("gelu");
            },
        ),
        (
            "llava-siglip",
            "`size.height` is 64, must be 36",
            |_, processor, _| {
                processor["size"] = json!({"height": 64, "width": 36});
            },
        ),
        (
            "granite-vision",
            "image_newline` is missing",
            |_, _, tensors| without(tensors, "image_newline"),
        ),
        (
            "llava",
            "`vision_feature_select_strategy` is full, must be default",
            |config, _, _| {
                config["vision_feature_select_strategy"] = json!("full");
            },
        ),
        (
            "llava",
            "`projector_hidden_act` is relu, must be gelu",
            |config, _, _| {
                config["projector_hidden_act"] = json!("relu");
            },
        ),
        (
            "llava",
            "`vision_config.hidden_act` is gelu, must be quick_gelu",
            |config, _, _| {
                config["vision_config"]["hidden_act"] = json!("gelu");
            },
        ),
        (
            "llava",
            "`crop_size.height` is 64, must be 32",
            |_, processor, _| {
                processor["crop_size"] = json!(64);
            },
        ),
        (
            "llava",
            "multi_modal_projector.linear_1.bias` is missing",
            |_, _, tensors| {
                without(tensors, "linear_1.bias");
            },
        ),
        ("llava", "class_embedding` is missing", |_, _, tensors| {
            without(tensors, "class_embedding");
        }),
        (
            "llava",
            "layers.1.mlp.fc1.weight` is missing",
            |_, _, tensors| {
                without(tensors, "vision_tower.encoder.layers.1.mlp.fc1.weight");
            },
        ),
        (
            "llava-next",
            "image_newline` is missing",
            |_, _, tensors| without(tensors, "image_newline"),
        ),
        (
            "llava-next",
            "`image_grid_pinpoints` must be [[32, 64], [64, 32], [64, 64]], as in",
            |_, processor, _| {
                processor["image_grid_pinpoints"] = json!([[32, 64]]);
            },
        ),
        (
            "llava-next",
            "`image_grid_pinpoints` must be a list of heights and widths",
            |config, _, _| {
                config["image_grid_pinpoints"] = json!([32, 64]);
            },
        ),
        (
            "llava-next",
            "`config.json: image_grid_pinpoints` is [65, 32], must be pairs of multiples of 32",
            |config, processor, _| {
                config["image_grid_pinpoints"] = json!([[32, 65]]);
                processor["image_grid_pinpoints"] = Value::Null;
            },
        ),
        (
            "pixtral",
            "`vision_feature_layer` names layer 1 of 2, must be -1",
            |config, _, _| {
                config["vision_feature_layer"] = json!(-2);
            },
        ),
        (
            "pixtral",
            "`vision_feature_layer` names several layers, must be -1",
            |config, _, _| {
                config["vision_feature_layer"] = json!([-1, -2]);
            },
        ),
        (
            "pixtral",
            "`vision_feature_select_strategy` is default, must be full",
            |config, _, _| {
                config["vision_feature_select_strategy"] = Value::Null;
            },
        ),
        (
            "pixtral",
            "`size.longest_edge` is 1024, must be at most 96",
            |_, processor, _| {
                processor["size"] = json!({"longest_edge": 1024});
            },
        ),
        (
            "pixtral",
            "`vision_config.hidden_act` is gelu, must be silu",
            |config, _, _| {
                config["vision_config"]["hidden_act"] = Value::Null;
            },
        ),
        (
            "pixtral",
            "embed_tokens.weight` is missing",
            |_, _, tensors| without(tensors, "embed_tokens"),
        ),
        (
            "mistral3",
            "`text_config.rms_norm_eps` is 0.001, must be 0.00001",
            |config, _, _| {
                config["text_config"]["rms_norm_eps"] = json!(1e-3);
            },
        ),
        (
            "mistral3",
            "multi_modal_projector.norm.weight` is missing",
            |_, _, tensors| {
                without(tensors, "multi_modal_projector.norm");
            },
        ),
        (
            "mistral3",
            "`patch_size.height` is 16, must be 8",
            |_, processor, _| {
                processor["patch_size"] = json!({"height": 16, "width": 16});
            },
        ),
    ];
    check(&rows);
}

#[test]
fn what_does_not_fit_in_towers_of_gemma4_is_named() {
    let rows: [(&str, &str, Change); 9] = [
        (
            "gemma4v",
            "`vision_config.num_key_value_heads` is 1, must be 2",
            |config, _, _| {
                config["vision_config"]["num_key_value_heads"] = json!(1);
            },
        ),
        (
            "gemma4v",
            "`vision_config.head_dim` is 64, must be `hidden_size` 64 divided by 2 heads",
            |config, _, _| {
                config["vision_config"]["head_dim"] = json!(64);
            },
        ),
        (
            "gemma4v",
            "`vision_config.rope_parameters.rope_type` is yarn, must be axial",
            |config, _, _| {
                config["vision_config"]["rope_parameters"]["rope_type"] = json!("yarn");
            },
        ),
        (
            "gemma4v",
            "`pooling_kernel_size` is 4, must be 3",
            |_, processor, _| {
                processor["pooling_kernel_size"] = json!(4);
            },
        ),
        (
            "gemma4v",
            "vision_tower.std_scale` is missing",
            |_, _, tensors| without(tensors, "std_scale"),
        ),
        (
            "gemma4v",
            "position_embedding_table (second dimension)` is 0",
            |_, _, tensors| {
                without(tensors, "position_embedding_table");
            },
        ),
        (
            "gemma4v-e",
            "layers.1.mlp.down_proj.output_max` is missing",
            |_, _, tensors| {
                without(tensors, "layers.1.mlp.down_proj.output_max");
            },
        ),
        (
            "gemma4uv",
            "`vision_config.model_type` is gemma4_vision, must be gemma4_unified_vision",
            |config, _, _| {
                config["vision_config"]["model_type"] = json!("gemma4_vision");
            },
        ),
        ("gemma4uv", "patch_ln2.bias` is missing", |_, _, tensors| {
            without(tensors, "patch_ln2.bias");
        }),
    ];
    check(&rows);
}

/// A tokenizer without the mark at the end of a line, and no tokenizer.
#[test]
fn tokenizers_without_the_mark_of_a_line_are_named() {
    let folder = saved(
        "pixtral",
        &saved_tensors("pixtral", FORMATS[1]),
        &configs("pixtral"),
    );
    for (text, part) in [
        (
            r#"{"added_tokens": []}"#,
            "tokenizer.json: `added_tokens` has no [IMG_BREAK]",
        ),
        (
            r#"{"added_tokens": [{"id": 96, "content": "[IMG_BREAK]"}]}"#,
            "has 96 rows, must have one for token 96",
        ),
        ("{", "tokenizer.json"),
    ] {
        folder.put("tokenizer.json", text.as_bytes());
        let said = open(&folder).expect_err(part);
        assert!(said.contains(part), "{part}: {said}");
    }
    std::fs::remove_file(folder.folder.join("tokenizer.json")).unwrap();
    let said = open(&folder).err().unwrap();
    assert!(said.contains("tokenizer.json"), "{said}");
}
