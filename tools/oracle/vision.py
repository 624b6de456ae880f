#!/usr/bin/env python3
"""Goldens of towers: small random models of transformers' classes, as GGUF files, with the rows that transformers computes.

    python vision.py crates/cpu/tests/goldens/towers

Needs torch, transformers, gguf and numpy. Makes for each case the file of the tower (NAME.mmproj.gguf), that of the text
(NAME.text.gguf, where the text is computed in a way of its own), and NAME.f32: the rows of the picture, then the logits of
all positions of the prompt. Everything is in float32 with eager attention. `cases.tsv` has a line for each: name, width and
height of the picture, its seed, rows, width of a row, the prompt (-1 for a row of the picture), entries of the vocabulary,
and for some the 24 tokens that greedy sampling continues the prompt with.

The names of tensors are those of llama.cpp's converter (`conversion/`), which is not run here: it needs the files of a
published model next to the weights.
"""

import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

PIXELS_MEAN = PIXELS_STD = 0.5
VOCAB = 96


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for case in (idefics3, idefics3_wide, qwen3vl, gemma3, gemma4v, gemma4v_e, gemma4uv):
        torch.manual_seed(20 + len(lines))
        lines.append(case(folder))
    (folder / "cases.tsv").write_text("".join(line + "\n" for line in lines))


def idefics3(folder):
    return idefics3_of(folder, "idefics3", image=64, scale=2)


def idefics3_wide(folder):
    """27 patches along an edge, as in SmolVLM 2.2B: pixels beyond the last, and parts of an edge that f32 rounds."""
    return idefics3_of(folder, "idefics3-27", image=220, scale=3)


def idefics3_of(folder, name, image, scale):
    vision = {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2,
              "patch_size": 8, "image_size": image, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"}
    text = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 2, "vocab_size": VOCAB, "pad_token_id": 0}
    config = transformers.Idefics3Config(vision_config=vision, text_config=text, scale_factor=scale, image_token_id=1,
                                         pad_token_id=0)
    config._attn_implementation = "eager"
    model = randomized(transformers.Idefics3Model(config))
    size, seed = (image, image), 5
    pixels = normalized(picture(*size, seed))
    with torch.no_grad():
        mask = torch.ones(1, image // 8, image // 8, dtype=torch.bool)
        hidden = model.vision_model(pixel_values=pixels[None], patch_attention_mask=mask).last_hidden_state
        rows = model.connector(hidden)[0]
    out = tower_writer(folder / f"{name}.mmproj.gguf", "idefics3", model.config.vision_config, 64)
    out.add_uint32("clip.vision.projector.scale_factor", scale)
    out.add_uint32("clip.vision.preproc_image_size", image)
    state = model.state_dict()
    put_siglip(out, state, "vision_model.")
    put(out, "mm.model.fc.weight", state["connector.modality_projection.proj.weight"])
    close(out)
    return keep(folder, name, size, seed, rows)


def gemma3(folder):
    vision = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 2,
              "patch_size": 8, "image_size": 64, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh",
              "vision_use_head": False}
    text = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCAB, "pad_token_id": 0, "sliding_window": 8,
            "query_pre_attn_scalar": 16, "max_position_embeddings": 256,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
    config = transformers.Gemma3Config(vision_config=vision, text_config=text, mm_tokens_per_image=16, image_token_id=1,
                                       image_token_index=1, boi_token_index=2, eoi_token_index=3)
    config._attn_implementation = "eager"
    model = randomized(transformers.Gemma3ForConditionalGeneration(config))
    size, seed = (64, 64), 6
    pixels = normalized(picture(*size, seed))[None]
    prompt = [5, 6, 7, 8, 2] + [1] * 16 + [3, 9, 10, 11, 12, 13, 14]
    ids = torch.tensor([prompt])
    with torch.no_grad():
        hidden = model.model.vision_tower(pixel_values=pixels).last_hidden_state
        rows = model.model.multi_modal_projector(hidden)[0]
        logits = model(input_ids=ids, pixel_values=pixels, token_type_ids=(ids == 1).long()).logits[0]
    out = tower_writer(folder / "gemma3.mmproj.gguf", "gemma3", model.config.vision_config, 64)
    out.add_uint32("clip.vision.projector.scale_factor", 2)
    state = {name: value for name, value in model.state_dict().items()}
    put_siglip(out, state, "model.vision_tower.")
    put(out, "mm.input_projection.weight", state["model.multi_modal_projector.mm_input_projection_weight"])
    put(out, "mm.soft_emb_norm.weight", state["model.multi_modal_projector.mm_soft_emb_norm.weight"] + 1)
    close(out)
    put_gemma3_text(folder / "gemma3.text.gguf", model.config.text_config, state, "model.language_model.")
    return keep(folder, "gemma3", size, seed, rows, prompt, logits)


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
                                       image_token_id=1, boi_token_id=2, eoi_token_id=3, video_token_id=91,
                                       audio_token_id=92)
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
    out = tower_writer(folder / f"{name}.mmproj.gguf", "gemma4v", model.config.vision_config, 64, image=96)
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
                                              boi_token_id=2, eoi_token_id=3, video_token_id=91, audio_token_id=92)
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
    """Writes the text, computes logits and an answer, and returns the case's line."""
    prompt = [5, 6, 7, 8, 2] + [1] * len(rows) + [3, 9, 10, 11, 12, 13, 14]
    with torch.no_grad():
        logits, answer, ids = None, [], prompt
        for _ in range(24):
            tensor = torch.tensor([ids])
            step = model(input_ids=tensor, mm_token_type_ids=(tensor == 1).long(), **inputs).logits[0]
            logits = step if logits is None else logits
            # Tokens with a meaning of their own do not come, nor do two candidates that are nearly equal.
            step[:, :5] = step[:, 90:] = float("-inf")
            best = step[-1].topk(2)
            assert best.values[0] - best.values[1] > 1e-3, f"{name}: {best}"
            answer.append(int(best.indices[0]))
            ids = ids + answer[-1:]
        logits = model(input_ids=torch.tensor([prompt]), mm_token_type_ids=(torch.tensor([prompt]) == 1).long(),
                       **inputs).logits[0]
    state = {**model.state_dict(), **dict(model.named_buffers())}
    put_gemma4_text(folder / f"{name}.text.gguf", model.config.text_config, state, "model.language_model.")
    size, seed = image
    return keep(folder, name, size, seed, rows, prompt, logits, answer)


def qwen3vl(folder):
    vision = {"hidden_size": 32, "intermediate_size": 80, "depth": 3, "num_heads": 2, "patch_size": 8,
              "out_hidden_size": 64, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1],
              "hidden_act": "gelu_pytorch_tanh"}
    text = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCAB, "max_position_embeddings": 256,
            "pad_token_id": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                                     "mrope_section": [4, 2, 2], "mrope_interleaved": True}}
    config = transformers.Qwen3VLConfig(vision_config=vision, text_config=text, image_token_id=1, vision_start_token_id=2,
                                        vision_end_token_id=3, video_token_id=4, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = randomized(transformers.Qwen3VLForConditionalGeneration(config))
    size, seed = (96, 64), 7
    grid = torch.tensor([[1, size[1] // 8, size[0] // 8]])
    pixels = blocks(normalized(picture(*size, seed)), 8, 2)
    pixels = pixels.repeat_interleave(2, dim=2).reshape(len(pixels), -1)
    rows_count = int(grid[0, 1] * grid[0, 2]) // 4
    prompt = [5, 6, 7, 2] + [1] * rows_count + [3, 9, 10, 11, 12, 13]
    ids = torch.tensor([prompt])
    with torch.no_grad():
        seen = model.model.visual(pixels, grid_thw=grid)
        rows = torch.cat([seen.pooler_output, *seen.deepstack_features], dim=-1)
        logits = model(input_ids=ids, pixel_values=pixels, image_grid_thw=grid, mm_token_type_ids=(ids == 1).int()).logits[0]
    vision = model.config.vision_config
    out = tower_writer(folder / "qwen3vl.mmproj.gguf", "qwen3vl_merger", vision, 64, image=6 * 8, heads=2, layers=3)
    out.add_uint32("clip.vision.spatial_merge_size", 2)
    out.add_array("clip.vision.is_deepstack_layers", [layer in (0, 1) for layer in range(3)])
    out.add_uint32("clip.vision.image_min_pixels", 256)
    out.add_uint32("clip.vision.image_max_pixels", 65536)
    state = model.state_dict()
    put_qwen3vl_tower(out, state, "model.visual.")
    close(out)
    put_qwen3vl_text(folder / "qwen3vl.text.gguf", model.config.text_config, state, "model.language_model.")
    return keep(folder, "qwen3vl", size, seed, rows, prompt, logits)


def put_siglip(out, state, prefix):
    """The names of SigLIP's tensors."""
    prefix = next(p for p in (prefix, prefix + "vision_model.") if p + "post_layernorm.weight" in state)
    put(out, "v.patch_embd.weight", state[prefix + "embeddings.patch_embedding.weight"])
    put(out, "v.patch_embd.bias", state[prefix + "embeddings.patch_embedding.bias"])
    put(out, "v.position_embd.weight", state[prefix + "embeddings.position_embedding.weight"])
    put_both(out, state, "v.post_ln", prefix + "post_layernorm")
    names = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
    put_layers(out, state, names, prefix + "encoder.layers.")


def put_qwen3vl_tower(out, state, prefix):
    """The names of Qwen3-VL's tower: a kernel for each of two frames."""
    kernel = state[prefix + "patch_embed.proj.weight"]
    put(out, "v.patch_embd.weight", kernel[:, :, 0])
    put(out, "v.patch_embd.weight.1", kernel[:, :, 1])
    put(out, "v.patch_embd.bias", state[prefix + "patch_embed.proj.bias"])
    put(out, "v.position_embd.weight", state[prefix + "pos_embed.weight"])
    names = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj", "ffn_up": "mlp.linear_fc1",
             "ffn_down": "mlp.linear_fc2"}
    put_layers(out, state, names, prefix + "blocks.")
    for ours, theirs in {"v.post_ln": "norm", "mm.0": "linear_fc1", "mm.2": "linear_fc2"}.items():
        put_both(out, state, ours, f"{prefix}merger.{theirs}")
    for number, layer in enumerate((0, 1)):
        for ours, theirs in {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}.items():
            put_both(out, state, f"v.deepstack.{layer}.{ours}", f"{prefix}deepstack_merger_list.{number}.{theirs}")


def put_qwen3vl_text(path, config, state, prefix):
    out = text_writer(path, "qwen3vl", config)
    out.add_float32("qwen3vl.rope.freq_base", 1e4)
    out.add_array("qwen3vl.rope.dimension_sections", [4, 2, 2, 0])
    out.add_uint32("qwen3vl.n_deepstack_layers", 2)
    put(out, "token_embd.weight", state[prefix + "embed_tokens.weight"])
    put(out, "output_norm.weight", state[prefix + "norm.weight"])
    put(out, "output.weight", state["lm_head.weight"])
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    put_layers(out, state, names, prefix + "layers.", "blk.")
    close(out)


def put_gemma3_text(path, config, state, prefix):
    """Norms have one added, as in converted files."""
    out = text_writer(path, "gemma3", config)
    out.add_uint32("gemma3.attention.sliding_window", 8)
    out.add_uint32("gemma3.attention.sliding_window_pattern", 2)
    out.add_float32("gemma3.rope.freq_base", 1e6)
    out.add_string("gemma3.rope.scaling.type", "linear")
    out.add_float32("gemma3.rope.scaling.factor", 8.0)
    put(out, "token_embd.weight", state[prefix + "embed_tokens.weight"])
    put(out, "output_norm.weight", state[prefix + "norm.weight"] + 1)
    names = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
             "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    shifted = {name: value + 1 if "norm" in name else value for name, value in state.items()}
    put_layers(out, shifted, names, prefix + "layers.", "blk.")
    close(out)


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


def tower_writer(path, projector, config, width, image=None, heads=None, layers=None):
    out = gguf.GGUFWriter(path, "clip")
    out.add_string("general.type", "mmproj")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.vision.projector_type" if projector == "gemma4v" else "clip.projector_type", projector)
    out.add_bool("clip.use_gelu", True)
    key = "clip.vision."
    out.add_uint32(key + "image_size", image or config.image_size)
    out.add_uint32(key + "patch_size", config.patch_size)
    out.add_uint32(key + "embedding_length", config.hidden_size)
    out.add_uint32(key + "feed_forward_length", config.intermediate_size)
    out.add_uint32(key + "projection_dim", width)
    out.add_uint32(key + "block_count", layers or config.num_hidden_layers)
    out.add_uint32(key + "attention.head_count", heads or config.num_attention_heads)
    out.add_float32(key + "attention.layer_norm_epsilon", 1e-6)
    # Gemma 4's own steps double what is in its files: parts of 0 to 1.
    mean, std = (0.0, 1.0) if projector == "gemma4v" else (PIXELS_MEAN, PIXELS_STD)
    out.add_array(key + "image_mean", [mean] * 3)
    out.add_array(key + "image_std", [std] * 3)
    return out


def text_writer(path, family, config):
    out = gguf.GGUFWriter(path, family)
    out.add_context_length(256)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_key_length(config.head_dim)
    out.add_value_length(config.head_dim)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    return out


def put_layers(out, state, names, prefix, ours="v.blk."):
    layer = 0
    while any(name.startswith(f"{prefix}{layer}.") for name in state):
        for to, source in names.items():
            if f"{prefix}{layer}.{source}.weight" in state:
                put_both(out, state, f"{ours}{layer}.{to}", f"{prefix}{layer}.{source}")
        layer += 1


def put_both(out, state, to, source):
    put(out, to + ".weight", state[source + ".weight"])
    if source + ".bias" in state:
        put(out, to + ".bias", state[source + ".bias"])


def put(out, name, tensor):
    kind = np.float16 if tensor.ndim > 1 else np.float32
    out.add_tensor(name, tensor.detach().float().contiguous().numpy().astype(kind))


def close(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def keep(folder, name, size, seed, rows, prompt=(), logits=None, answer=()):
    """Writes numbers, and returns the case's line."""
    parts = [rows.float().numpy().ravel()]
    spread = rows.std().item()
    assert spread > 0.05 and torch.isfinite(rows).all(), f"{name}: {spread}"
    if logits is not None:
        parts.append(logits.float().numpy().ravel())
    np.concatenate(parts).astype("<f4").tofile(folder / f"{name}.f32")
    ids = " ".join(str(-1 if token == 1 else token) for token in prompt)
    fields = [name, *size, seed, *rows.shape, ids, VOCAB]
    return "\t".join(map(str, fields + ([" ".join(map(str, answer))] if answer else [])))


def randomized(model):
    """Parameters that f16 has, which make attention sharp, norms and biases effective."""
    model.eval()
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        with torch.no_grad():
            if parameter.ndim == 1 and name.endswith("weight"):
                is_shifted = "language_model" in name or "soft_emb" in name
                around = 0.0 if is_shifted and "Gemma3" in type(model).__name__ else 1.0
                parameter.copy_(around + 0.2 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.2 * noise)
            elif "embed" in name and parameter.ndim == 2:
                parameter.copy_(noise / parameter.shape[1] ** 0.5 if "tokens" in name else 0.5 * noise)
            elif name.endswith("mm_input_projection_weight"):
                parameter.copy_(noise / parameter.shape[0] ** 0.5)
            else:
                parameter.copy_(1.3 * noise / (parameter[0].numel() ** 0.5))
            parameter.copy_(parameter.half().float())
    return model


def picture(width, height, seed):
    """Noise of 8 bits, (height, width, 3): xorshift32, as the test has it."""
    state = (seed * 0x9E3779B9) & 0xFFFFFFFF | 1
    levels = np.empty(height * width * 3, np.uint8)
    for at in range(len(levels)):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        levels[at] = state >> 24
    return levels.reshape(height, width, 3)


def normalized(levels):
    """(3, height, width) in float32, as transformers' processors compute it."""
    scaled = (levels.astype(np.float64) * (1 / 255)).astype(np.float32)
    return torch.from_numpy(((scaled - np.float32(PIXELS_MEAN)) / np.float32(PIXELS_STD)).transpose(2, 0, 1).copy())


def blocks(pixels, patch, merge):
    """Patches in blocks of merge by merge, (patches, 3, 1, patch, patch)."""
    _, height, width = pixels.shape
    rows, columns = height // patch // merge, width // patch // merge
    cut = pixels.reshape(3, rows, merge, patch, columns, merge, patch)
    return cut.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, 1, patch, patch)


if __name__ == "__main__":
    main()
