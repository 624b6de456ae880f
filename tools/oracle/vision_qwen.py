"""The cases of Qwen 3.5, and of Qwen's models with experts: a part of `vision.py`, which has their format."""

import torch
import transformers

from vision import MILD_GAIN, QWEN_IDS, VOCAB, close, put, put_layers, qwen3vl_of, randomized, text_writer

VISION = {"hidden_size": 32, "intermediate_size": 64, "depth": 2, "num_heads": 2, "patch_size": 8, "out_hidden_size": 32,
          "num_position_embeddings": 16, "hidden_act": "gelu_pytorch_tanh"}
TEXT = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
        "pad_token_id": None}
# Recurrent layers before and after one with attention, in which half of a head turns.
DELTA = {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_key_head_dim": 16,
         "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2],
                             "mrope_interleaved": True, "partial_rotary_factor": 0.5}}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def qwen35(folder):
    """Qwen 3.5 to 3.8, dense."""
    return qwen35_of(folder, "qwen3.5", "Qwen3_5", (64, 96), 20, {})


def qwen35_moe(folder):
    """The same with experts, and one that all rows use."""
    more = {**EXPERTS, "shared_expert_intermediate_size": 32}
    return qwen35_of(folder, "qwen3.5-moe", "Qwen3_5Moe", (80, 48), 21, more)


def qwen35_of(folder, name, family, size, seed, more):
    return qwen3vl_of(folder, name, made(family, VISION, {**TEXT, **DELTA, **more}), size, seed, put_qwen35_text)


def qwen3vl_moe(folder):
    """Qwen3-VL 30B-A3B and 235B-A22B."""
    vision = {**VISION, "deepstack_visual_indexes": [0]}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 4, 4], "mrope_interleaved": True}
    # Experts that are not square: their shape tells whether rows and columns are exchanged.
    text = {**TEXT, **EXPERTS, "num_hidden_layers": 2, "moe_intermediate_size": 64, "rope_parameters": rope}
    return qwen3vl_of(folder, "qwen3vl-moe", made("Qwen3VLMoe", vision, text), (96, 48), 22, put_qwen3vl_moe_text)


def made(family, vision, text):
    config = getattr(transformers, f"{family}Config")(vision_config=vision, text_config=text, **QWEN_IDS)
    config._attn_implementation = "eager"
    return randomized(getattr(transformers, f"{family}ForConditionalGeneration")(config), MILD_GAIN)


ATTENTION = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
             "attn_k_norm": "self_attn.k_norm"}
FEED = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
SHARED = {"ffn_gate_inp": "mlp.gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
          "ffn_up_shexp": "mlp.shared_expert.up_proj", "ffn_down_shexp": "mlp.shared_expert.down_proj"}
DELTA_NAMES = {"attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
               "ssm_alpha": "linear_attn.in_proj_a", "ssm_beta": "linear_attn.in_proj_b", "ssm_conv1d": "linear_attn.conv1d",
               "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj"}


def put_qwen3vl_moe_text(path, config, state, prefix):
    out = text_writer(path, "qwen3vlmoe", config)
    out.add_uint32("qwen3vlmoe.n_deepstack_layers", 1)
    put_qwen_keys(out, "qwen3vlmoe", config)
    put_qwen_outer(out, state, prefix)
    put_layers(out, state, {**ATTENTION, "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate"},
               prefix + "layers.", "blk.")
    for layer in range(config.num_hidden_layers):
        put_experts(out, layer, state, f"{prefix}layers.{layer}.mlp.")
    close(out)


def put_qwen35_text(path, config, state, prefix):
    """Norms have one added, and the first value head of every key head comes first, as in converted files."""
    family = "qwen35moe" if hasattr(config, "num_experts") else "qwen35"
    out = text_writer(path, family, config)
    put_qwen_keys(out, family, config)
    out.add_uint32(family + ".full_attention_interval", 2)
    keys, values, dim = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_value_head_dim
    for key, value in {"conv_kernel": config.linear_conv_kernel_dim, "state_size": dim, "group_count": keys,
                       "time_step_rank": values, "inner_size": dim * values}.items():
        out.add_uint32(f"{family}.ssm.{key}", value)
    before = 2 * keys * dim
    swapped = lambda tensor: tensor.reshape(keys, values // keys, -1, *tensor.shape[1:]).swapaxes(0, 1).reshape(tensor.shape)
    converted = {}
    for name, value in state.items():
        if "norm" in name and "linear_attn" not in name:
            value = value + 1
        elif name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            value = value.squeeze(1) if "conv1d" in name else value
            value = torch.cat([value[:before], swapped(value[before:])])
        elif name.endswith(("in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight", "dt_bias", "A_log")):
            value = swapped(value)
        elif name.endswith("linear_attn.out_proj.weight"):
            value = swapped(value.T).T
        converted[name] = value
    put_qwen_outer(out, converted, prefix)
    names = {**ATTENTION, "post_attention_norm": "post_attention_layernorm", **FEED, **SHARED, **DELTA_NAMES}
    put_layers(out, converted, names, prefix + "layers.", "blk.")
    for layer in range(config.num_hidden_layers):
        of_layer = f"{prefix}layers.{layer}."
        decays = converted.get(of_layer + "linear_attn.A_log")
        if decays is not None:
            # As exact as it is possible: libraries differ in the last bit of float32.
            put(out, f"blk.{layer}.ssm_a", -decays.double().exp())
            put(out, f"blk.{layer}.ssm_dt.bias", converted[of_layer + "linear_attn.dt_bias"])
        if family == "qwen35moe":
            put_experts(out, layer, state, of_layer + "mlp.")
            put(out, f"blk.{layer}.ffn_gate_inp_shexp.weight", state[of_layer + "mlp.shared_expert_gate.weight"][0])
    close(out)


def put_qwen_keys(out, family, config):
    rope = config.rope_parameters
    out.add_float32(family + ".rope.freq_base", rope["rope_theta"])
    out.add_uint32(family + ".rope.dimension_count", int(config.head_dim * rope.get("partial_rotary_factor", 1)))
    out.add_array(family + ".rope.dimension_sections", [*rope["mrope_section"], 0])
    if hasattr(config, "num_experts"):
        out.add_uint32(family + ".expert_count", config.num_experts)
        out.add_uint32(family + ".expert_used_count", config.num_experts_per_tok)
        out.add_uint32(family + ".expert_feed_forward_length", config.moe_intermediate_size)


def put_qwen_outer(out, state, prefix):
    put(out, "token_embd.weight", state[prefix + "embed_tokens.weight"])
    put(out, "output_norm.weight", state[prefix + "norm.weight"])
    put(out, "output.weight", state["lm_head.weight"])


def put_experts(out, layer, state, prefix):
    gate, up = state[prefix + "experts.gate_up_proj"].chunk(2, dim=1)
    put(out, f"blk.{layer}.ffn_gate_exps.weight", gate)
    put(out, f"blk.{layer}.ffn_up_exps.weight", up)
    put(out, f"blk.{layer}.ffn_down_exps.weight", state[prefix + "experts.down_proj"])
