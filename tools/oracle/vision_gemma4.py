"""The cases of Gemma 4: a part of `vision.py`, which has their format."""

import gguf
import numpy as np
import torch
import transformers

from vision import VOCAB, close, keep, picture, put, put_layers, randomized, tower_writer


def gemma4v(folder):
    """As 26B and 31B: rows of an image see each other in layers with a window; rows of the tower are standardized."""
    return gemma4v_of(folder, "gemma4v", {"standardize": True}, {"use_bidirectional_attention": "vision"})


def gemma4v_e(folder):
    """As E2B and E4B: causal, with embeddings for each layer, shared keys and values, and clamped matrices in the tower."""
    text = {"hidden_size_per_layer_input": 32, "num_hidden_layers": 4, "num_kv_shared_layers": 2}
    return gemma4v_of(folder, "gemma4v-e", {"use_clipped_linears": True}, text)


def gemma4v_of(folder, name, vision, text):
    vision = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 2, "head_dim": 32, "patch_size": 8, "position_embedding_size": 24, **vision}
    config = transformers.Gemma4Config(vision_config=vision, text_config=gemma4_text(**text), audio_config=None,
                                       image_token_id=1, boi_token_id=2, eoi_token_id=3, video_token_id=4,
                                       audio_token_id=4)
    config._attn_implementation = "eager"
    model = randomized(transformers.Gemma4ForConditionalGeneration(config))
    buffers = dict(model.named_buffers())
    for at, (key, buffer) in enumerate(buffers.items()):
        if key.endswith(("_min", "_max")):
            # Bounds that cut a part of the numbers, others for each matrix.
            bound = 0.75 + 0.25 * (at % 7)
            buffer.fill_(-bound if key.endswith("_min") else bound)
        elif key.endswith(("std_bias", "std_scale")):
            noise = torch.randn_like(buffer)
            buffer.copy_(2 * noise if key.endswith("bias") else 1 + 0.3 * noise)
        elif key.endswith("layer_scalar"):
            buffer.fill_(0.75 + 0.25 * (at % 3))
    size, seed = (96, 72), 8
    patches = torch.from_numpy((picture(*size, seed).astype(np.float64) * (1 / 255)).astype(np.float32))
    patches = patches.reshape(9, 8, 12, 8, 3).permute(0, 2, 1, 3, 4).reshape(1, 108, -1)
    places = torch.tensor([[(x, y) for y in range(9) for x in range(12)]])
    inputs = {"pixel_values": patches, "image_position_ids": places}
    with torch.no_grad():
        rows = model.model.get_image_features(**inputs).pooler_output[0]
    # Files name no activation, and the levels of pictures as they are: the tower itself makes -1 to 1 of 0 to 1.
    out = tower_writer(folder / f"{name}.mmproj.gguf", "gemma4v", model.config.vision_config, 64, image=96, act=None,
                       normalization=((0.0,) * 3, (1.0,) * 3))
    state = {**model.state_dict(), **buffers}
    put_gemma4v_tower(out, state, "model.vision_tower.")
    put(out, "mm.input_projection.weight", state["model.embed_vision.embedding_projection.weight"])
    close(out)
    return gemma4_answer(folder, name, model, (size, seed), rows, inputs)


def gemma4uv(folder):
    """As 12B, which has no tower."""
    vision = {"mm_embed_dim": 64, "mm_posemb_size": 16, "output_proj_dims": 64, "patch_size": 4}
    text = gemma4_text(use_bidirectional_attention="vision")
    del text["hidden_size_per_layer_input"], text["vocab_size_per_layer_input"]
    config = transformers.Gemma4UnifiedConfig(vision_config=vision, text_config=text, audio_config=None, image_token_id=1,
                                              boi_token_id=2, eoi_token_id=3, video_token_id=4, audio_token_id=4)
    config._attn_implementation = "eager"
    model = randomized(transformers.Gemma4UnifiedForConditionalGeneration(config))
    size, seed = (48, 36), 9
    patches = torch.from_numpy((picture(*size, seed).astype(np.float64) * (1 / 255)).astype(np.float32))
    patches = patches.reshape(3, 12, 4, 12, 3).permute(0, 2, 1, 3, 4).reshape(1, 12, -1)
    places = torch.tensor([[(x, y) for y in range(3) for x in range(4)]])
    inputs = {"pixel_values": patches, "image_position_ids": places}
    with torch.no_grad():
        rows = model.model.embed_vision(**inputs).pooler_output[0]
    out = gguf.GGUFWriter(folder / "gemma4uv.mmproj.gguf", "clip")
    out.add_string("general.type", "mmproj")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.vision.projector_type", "gemma4uv")
    for key, value in {"image_size": 48, "patch_size": 4, "embedding_length": 64, "projection_dim": 64,
                       "feed_forward_length": 0, "block_count": 0, "attention.head_count": 0}.items():
        out.add_uint32("clip.vision." + key, value)
    out.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    out.add_array("clip.vision.image_mean", [0.0] * 3)
    out.add_array("clip.vision.image_std", [1.0] * 3)
    state = dict(model.state_dict())
    prefix = "model.embed_vision."
    # Channels come first in files, last in transformers.
    planes = lambda tensor: tensor.reshape(-1, 12, 12, 3).permute(0, 3, 1, 2).reshape(tensor.shape)
    put(out, "v.patch_embd.weight", planes(state[prefix + "patch_dense.weight"]))
    put(out, "v.patch_embd.bias", state[prefix + "patch_dense.bias"])
    for ours, theirs in {"1": "patch_ln1", "2": "patch_ln2", "3": "pos_norm"}.items():
        for part in ("weight", "bias"):
            tensor = state[f"{prefix}{theirs}.{part}"]
            put(out, f"v.patch_norm.{ours}.{part}", planes(tensor) if ours == "1" else tensor)
    out.add_tensor("v.position_embd.weight", state[prefix + "pos_embedding"].transpose(0, 1).contiguous().numpy())
    put(out, "mm.input_projection.weight", state[prefix + "multimodal_embedder.embedding_projection.weight"])
    close(out)
    return gemma4_answer(folder, "gemma4uv", model, (size, seed), rows, inputs)


def gemma4_text(**more):
    text = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "vocab_size": VOCAB, "pad_token_id": 0,
            "sliding_window": 8, "max_position_embeddings": 256, "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": VOCAB, "final_logit_softcapping": 30.0,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                                   "rope_theta": 1e6},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}
    return {**text, **more}


def gemma4_answer(folder, name, model, image, rows, inputs):
    """Writes the text, and returns the case's line."""
    def logits_of(ids):
        # The masks of `generate`. A bare call of the class of 12B has the masks of Gemma 3: its rows of images see each
        # other in layers without a window, too.
        tensor = torch.tensor([ids])
        embeds = model.get_input_embeddings()(tensor)
        masks = model.create_masks_for_generate(config=model.config, inputs_embeds=embeds, attention_mask=None, cache=None,
                                                position_ids=None, mm_token_type_ids=(tensor == 1).long())
        return model(input_ids=tensor, attention_mask=masks, **inputs).logits[0]

    prompt = [5, 6, 7, 8, 2] + [1] * len(rows) + [3, 9, 10, 11, 12, 13, 14]
    state = {**model.state_dict(), **dict(model.named_buffers())}
    put_gemma4_text(folder / f"{name}.text.gguf", model.config.text_config, state, "model.language_model.")
    size, seed = image
    return keep(folder, name, size, seed, rows, prompt, logits_of)


def put_gemma4v_tower(out, state, prefix):
    """The names of Gemma 4's tower. Channels come first in files, last in transformers."""
    kernel = state[prefix + "patch_embedder.input_proj.weight"]
    put(out, "v.patch_embd.weight", kernel.reshape(len(kernel), 8, 8, 3).permute(0, 3, 1, 2))
    out.add_tensor("v.position_embd.weight", state[prefix + "patch_embedder.position_embedding_table"].numpy())
    names = {"ln1": "input_layernorm", "ln2": "pre_feedforward_layernorm", "attn_post_norm": "post_attention_layernorm",
             "ffn_post_norm": "post_feedforward_layernorm", "attn_q": "self_attn.q_proj.linear",
             "attn_k": "self_attn.k_proj.linear", "attn_v": "self_attn.v_proj.linear",
             "attn_out": "self_attn.o_proj.linear", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "ffn_gate": "mlp.gate_proj.linear", "ffn_up": "mlp.up_proj.linear", "ffn_down": "mlp.down_proj.linear"}
    put_layers(out, state, names, prefix + "encoder.layers.")
    for to, source in names.items():
        for layer in range(2):
            for bound in ("input_min", "input_max", "output_min", "output_max"):
                key = f"{prefix}encoder.layers.{layer}.{source.removesuffix('.linear')}.{bound}"
                if key in state:
                    put(out, f"v.blk.{layer}.{to}.{bound}", state[key].reshape(1))
    for part in ("std_bias", "std_scale"):
        if prefix + part in state:
            put(out, "v." + part, state[prefix + part])


def put_gemma4_text(path, config, state, prefix):
    out = gguf.GGUFWriter(path, "gemma4")
    out.add_context_length(256)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_uint32("gemma4.attention.key_length", 32)
    out.add_uint32("gemma4.attention.value_length", 32)
    out.add_uint32("gemma4.attention.key_length_swa", 16)
    out.add_uint32("gemma4.attention.value_length_swa", 16)
    out.add_uint32("gemma4.rope.dimension_count", 32)
    out.add_uint32("gemma4.rope.dimension_count_swa", 16)
    out.add_float32("gemma4.rope.freq_base", 1e6)
    out.add_float32("gemma4.rope.freq_base_swa", 1e4)
    out.add_uint32("gemma4.attention.sliding_window", config.sliding_window)
    out.add_array("gemma4.attention.sliding_window_pattern", [kind == "sliding_attention" for kind in config.layer_types])
    out.add_uint32("gemma4.attention.shared_kv_layers", config.num_kv_shared_layers)
    out.add_uint32("gemma4.embedding_length_per_layer_input", getattr(config, "hidden_size_per_layer_input", 0) or 0)
    out.add_float32("gemma4.final_logit_softcapping", config.final_logit_softcapping)
    # A quarter of a head of 32 turns in layers without a window.
    put(out, "rope_freqs.weight", torch.tensor([1.0] * 4 + [1e30] * 12))
    put(out, "token_embd.weight", state[prefix + "embed_tokens.weight"])
    put(out, "output_norm.weight", state[prefix + "norm.weight"])
    if prefix + "embed_tokens_per_layer.weight" in state:
        put(out, "per_layer_token_embd.weight", state[prefix + "embed_tokens_per_layer.weight"])
        put(out, "per_layer_model_proj.weight", state[prefix + "per_layer_model_projection.weight"])
        put(out, "per_layer_proj_norm.weight", state[prefix + "per_layer_projection_norm.weight"])
    names = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
             "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
             "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm"}
    put_layers(out, state, names, prefix + "layers.", "blk.")
    for layer in range(config.num_hidden_layers):
        put(out, f"blk.{layer}.layer_output_scale.weight", state[f"{prefix}layers.{layer}.layer_scalar"])
    close(out)
