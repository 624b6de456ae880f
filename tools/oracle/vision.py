#!/usr/bin/env python3
"""Goldens of towers: small random models of transformers' classes, as GGUF files, with the rows that transformers computes.

    python vision.py crates/cpu/tests/goldens/towers

Needs torch, transformers, gguf, numpy and Pillow. Makes for each case the file of the tower (NAME.mmproj.gguf), that of the
text (NAME.text.gguf), and NAME.f32: the rows of the picture, then the logits of all positions of the prompt. Everything is in
float32 with eager attention. `cases.tsv` has a line for each: name, width and height of the picture, its seed, rows, width of
a row, the prompt (-1 for a row of the picture), entries of the vocabulary, and the tokens that are most likely after the
prompt, one after another, without marks of images.

The names of tensors are those of llama.cpp's converter (`conversion/`), which is not run here: it needs the files of a
published model next to the weights.
"""

import pathlib
import sys
import types

import gguf
import numpy as np
import torch
import transformers
from PIL import Image

from pictures import picture

PIXELS_MEAN = PIXELS_STD = 0.5
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
VOCAB = 96
# Tokens below are marks of images, and not among the answers.
MARKS = 5
GREEDY = 24
# The least distance of the most likely token from the next, so that rounding does not choose another.
MARGIN = 2e-3
# The least number of different tokens among the answers: a model that says one again and again would say it by mistake, too.
DISTINCT = 8
# Gain of matrices where that of 1.3 makes the error of Q8_0 larger than its bound, in torch as here.
MILD_GAIN = 1.0


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for case in cases():
        torch.manual_seed(20 + len(lines))
        lines.append(case(folder))
    (folder / "cases.tsv").write_text("".join(line + "\n" for line in lines))


def cases():
    from vision_gemma4 import gemma4uv, gemma4v, gemma4v_e
    from vision_llava import granite_vision, llava_siglip
    from vision_minicpm import minicpm25, minicpm26, minicpm46, minicpm_ocr
    from vision_qwen import qwen3vl_moe, qwen35, qwen35_moe

    return (idefics3, idefics3_wide, qwen3vl, gemma3, qwen2vl, qwen25vl, pixtral, mistral3, llava, llava_next, gemma4v,
            gemma4v_e, gemma4uv, internvl, lfm2vl, minicpm25, minicpm26, minicpm46, qwen35, qwen35_moe, qwen3vl_moe,
            llava_siglip, granite_vision, minicpm_ocr)


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
    put_llama_text(folder / f"{name}.text.gguf", model.config.text_config, state, "text_model.")
    prompt = [5, 6, 7, 2] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]

    def logits_of(ids):
        ids = torch.tensor([ids])
        embedded = model.text_model.embed_tokens(ids)
        embedded[ids == 1] = rows
        hidden = model.text_model(inputs_embeds=embedded).last_hidden_state[0]
        return hidden @ model.text_model.embed_tokens.weight.T

    return keep(folder, name, size, seed, rows, prompt, logits_of)


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
    with torch.no_grad():
        hidden = model.model.vision_tower(pixel_values=pixels).last_hidden_state
        rows = model.model.multi_modal_projector(hidden)[0]

    def logits_of(ids):
        ids = torch.tensor([ids])
        return model(input_ids=ids, pixel_values=pixels, token_type_ids=(ids == 1).long()).logits[0]

    out = tower_writer(folder / "gemma3.mmproj.gguf", "gemma3", model.config.vision_config, 64)
    out.add_uint32("clip.vision.projector.scale_factor", 2)
    state = {name: value for name, value in model.state_dict().items()}
    put_siglip(out, state, "model.vision_tower.")
    put(out, "mm.input_projection.weight", state["model.multi_modal_projector.mm_input_projection_weight"])
    put(out, "mm.soft_emb_norm.weight", state["model.multi_modal_projector.mm_soft_emb_norm.weight"] + 1)
    close(out)
    put_gemma3_text(folder / "gemma3.text.gguf", model.config.text_config, state, "model.language_model.")
    return keep(folder, "gemma3", size, seed, rows, prompt, logits_of)


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
    model = randomized(transformers.Qwen3VLForConditionalGeneration(config), head=1)
    return qwen3vl_of(folder, "qwen3vl", model, (96, 64), 7, put_qwen3vl_text)


def qwen3vl_of(folder, name, model, size, seed, put_text):
    """A model with Qwen3-VL's tower."""
    grid = torch.tensor([[1, size[1] // 8, size[0] // 8]])
    pixels = blocks(normalized(picture(*size, seed)), 8, 2)
    pixels = pixels.repeat_interleave(2, dim=2).reshape(len(pixels), -1)
    rows_count = int(grid[0, 1] * grid[0, 2]) // 4
    prompt = [5, 6, 7, 2] + [1] * rows_count + [3, 9, 10, 11, 12, 13]
    with torch.no_grad():
        seen = model.model.visual(pixels, grid_thw=grid)
        rows = torch.cat([seen.pooler_output, *getattr(seen, "deepstack_features", [])], dim=-1)
    vision = model.config.vision_config
    after = getattr(vision, "deepstack_visual_indexes", [])
    out = tower_writer(folder / f"{name}.mmproj.gguf", "qwen3vl_merger", vision, vision.out_hidden_size,
                       image=round(vision.num_position_embeddings ** 0.5) * 8, heads=2, layers=vision.depth)
    out.add_uint32("clip.vision.spatial_merge_size", 2)
    out.add_array("clip.vision.is_deepstack_layers", [layer in after for layer in range(vision.depth)])
    out.add_uint32("clip.vision.image_min_pixels", 256)
    out.add_uint32("clip.vision.image_max_pixels", 65536)
    state = model.state_dict()
    put_qwen3vl_tower(out, state, "model.visual.", after)
    close(out)
    put_text(folder / f"{name}.text.gguf", model.config.text_config, state, "model.language_model.")
    return keep(folder, name, size, seed, rows, prompt, qwen_logits(model, pixels, grid))


def qwen_logits(model, pixels, grid):
    def logits_of(ids):
        ids = torch.tensor([ids])
        return model(input_ids=ids, pixel_values=pixels, image_grid_thw=grid, mm_token_type_ids=(ids == 1).int()).logits[0]

    return logits_of


def qwen2vl(folder):
    vision = {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 3, "depth": 3, "num_heads": 2, "patch_size": 8}
    config = transformers.Qwen2VLConfig(vision_config=vision, text_config=qwen2vl_text("Qwen2VL"), **QWEN_IDS)
    config._attn_implementation = "eager"
    model = randomized(transformers.Qwen2VLForConditionalGeneration(config))
    # As the first converter: exchanged names, no width of the feed-forward parts, and a table that nothing reads.
    names = {"ffn_down": "mlp.fc1", "ffn_up": "mlp.fc2"}
    return qwen2vl_of(folder, "qwen2vl", model, (64, 48), 8, (32, 0), names)


def qwen25vl(folder):
    """Windows of 2 by 2 rows of the output in a picture of 5 by 3, and every second layer in full."""
    vision = {"hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 64, "depth": 3, "num_heads": 2,
              "patch_size": 8, "window_size": 32, "fullatt_block_indexes": [1]}
    config = transformers.Qwen2_5_VLConfig(vision_config=vision, text_config=qwen2vl_text("Qwen2_5_VL"), **QWEN_IDS)
    config._attn_implementation = "eager"
    model = randomized(transformers.Qwen2_5_VLForConditionalGeneration(config), MILD_GAIN)
    names = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    return qwen2vl_of(folder, "qwen2.5vl", model, (80, 48), 9, (64, 96), names)


QWEN_IDS = {"image_token_id": 1, "vision_start_token_id": 2, "vision_end_token_id": 3, "video_token_id": 4,
            "tie_word_embeddings": False}


def qwen2vl_text(family):
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    return {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
            "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "rope_parameters": rope}


def qwen2vl_of(folder, name, model, size, seed, widths, names):
    grid = torch.tensor([[1, size[1] // 8, size[0] // 8]])
    pixels = blocks(normalized(picture(*size, seed), CLIP_MEAN, CLIP_STD), 8, 2)
    pixels = pixels.repeat_interleave(2, dim=2).reshape(len(pixels), -1)
    with torch.no_grad():
        rows = model.model.visual(pixels, grid_thw=grid).pooler_output
    vision = model.config.vision_config
    out = tower_writer(folder / f"{name}.mmproj.gguf", f"{name}_merger", vision, 64, image=64, layers=vision.depth,
                       heads=vision.num_heads, widths=widths, normalization=(CLIP_MEAN, CLIP_STD),
                       act="silu" if name == "qwen2.5vl" else "quick_gelu")
    if name == "qwen2.5vl":
        out.add_uint32("clip.vision.n_wa_pattern", 2)
        out.add_uint32("clip.vision.window_size", 32)
    else:
        put(out, "v.position_embd.weight", torch.zeros(10, 10))
    out.add_uint32("clip.vision.image_min_pixels", 256)
    out.add_uint32("clip.vision.image_max_pixels", 65536)
    state = model.state_dict()
    put_qwen2vl_tower(out, state, "model.visual.", names)
    close(out)
    put_qwen2vl_text(folder / f"{name}.text.gguf", model.config.text_config, state, "model.language_model.")
    prompt = [5, 6, 7, 2] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]
    return keep(folder, name, size, seed, rows, prompt, qwen_logits(model, pixels, grid))


def pixtral(folder):
    """Pixtral: each patch a row."""
    vision = pixtral_vision(image=96)
    config = transformers.LlavaConfig(vision_config=vision, text_config=mistral_text(), image_token_index=1,
                                      vision_feature_layer=-1, vision_feature_select_strategy="full")
    config._attn_implementation = "eager"
    model = randomized(transformers.LlavaForConditionalGeneration(config), MILD_GAIN)
    return pixtral_of(folder, "pixtral", model, (48, 32), 10, 1)


def mistral3(folder):
    """Mistral Small 3.1 and Ministral 3: 2 by 2 patches become a row."""
    vision = pixtral_vision(image=96)
    config = transformers.Mistral3Config(vision_config=vision, text_config=mistral_text(), image_token_index=1,
                                         tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = randomized(transformers.Mistral3ForConditionalGeneration(config), MILD_GAIN)
    return pixtral_of(folder, "mistral3", model, (80, 48), 11, 2)


def pixtral_vision(image):
    return {"model_type": "pixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 32,
            "num_attention_heads": 2, "patch_size": 8, "image_size": image, "hidden_act": "silu",
            "rope_parameters": {"rope_type": "axial", "rope_theta": 1e4}}


def mistral_text():
    return {"model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCAB,
            "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "sliding_window": None,
            "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}


def pixtral_of(folder, name, model, size, seed, merge):
    """The rows of the picture have [IMG_BREAK] after each line but the last: token 4 of the prompt."""
    pixels = normalized(picture(*size, seed), CLIP_MEAN, CLIP_STD)[None]
    sizes = torch.tensor([[size[1], size[0]]])
    with torch.no_grad():
        cells = torch.cat(list(model.model.get_image_features(pixels, image_sizes=sizes, vision_feature_layer=-1).pooler_output))
    across = size[0] // 8 // merge
    lines = cells.reshape(-1, across, cells.shape[-1])
    end = model.model.language_model.embed_tokens.weight[4].expand(len(lines), 1, -1)
    rows = torch.cat([lines, end], dim=1).flatten(0, 1)[:-1]
    run = ([1] * across + [4]) * len(lines)
    prompt = [5, 6, 7] + run[:-1] + [3, 9, 10, 11, 12, 13]
    state = model.state_dict()
    vision = model.config.vision_config
    out = tower_writer(folder / f"{name}.mmproj.gguf", "pixtral", vision, 64, normalization=(CLIP_MEAN, CLIP_STD), eps=1e-5,
                       act="silu")
    put_pixtral_tower(out, state, "model.vision_tower.")
    put(out, "v.token_embd.img_break", state["model.language_model.embed_tokens.weight"][4])
    if merge > 1:
        out.add_uint32("clip.vision.spatial_merge_size", merge)
        put(out, "mm.input_norm.weight", state["model.multi_modal_projector.norm.weight"])
        put(out, "mm.patch_merger.weight", state["model.multi_modal_projector.patch_merger.merging_layer.weight"])
    for ours, theirs in {"mm.1": "linear_1", "mm.2": "linear_2"}.items():
        put_both(out, state, ours, f"model.multi_modal_projector.{theirs}")
    close(out)
    put_llama_text(folder / f"{name}.text.gguf", model.config.text_config, state, "model.language_model.")

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels, image_sizes=sizes).logits[0]

    return keep(folder, name, size, seed, rows, prompt, logits_of, of_picture=(1, 4))


def llava(folder):
    """LLaVA 1.5: the files have the layers before the last alone."""
    config = transformers.LlavaConfig(vision_config=clip_vision(), text_config=llama_text(), image_token_index=1)
    config._attn_implementation = "eager"
    model = randomized(transformers.LlavaForConditionalGeneration(config), MILD_GAIN)
    size, seed = (32, 32), 12
    pixels = normalized(picture(*size, seed), CLIP_MEAN, CLIP_STD)[None]
    with torch.no_grad():
        rows = model.model.get_image_features(pixels, vision_feature_layer=-2,
                                              vision_feature_select_strategy="default").pooler_output[0]
    put_llava_tower(folder / "llava.mmproj.gguf", model, layers=2)

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels).logits[0]

    prompt = [5, 6, 7] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]
    return keep(folder, "llava", size, seed, rows, prompt, logits_of)


def llava_next(folder):
    """LLaVA 1.6: the whole picture, then two tiles of which half is padding, each line with its end."""
    pinpoints = [[32, 64], [64, 32], [64, 64]]
    config = transformers.LlavaNextConfig(vision_config=clip_vision(), text_config=llama_text(), image_token_index=1,
                                          image_grid_pinpoints=pinpoints)
    config._attn_implementation = "eager"
    model = randomized(transformers.LlavaNextForConditionalGeneration(config), MILD_GAIN)
    with torch.no_grad():
        model.model.image_newline.copy_(model.model.image_newline.half().float())
    size, seed = (64, 16), 13
    levels = picture(*size, seed)
    whole = np.asarray(Image.fromarray(levels).resize((32, 32), Image.Resampling.BICUBIC))
    large = np.zeros((32, 64, 3), np.uint8)
    large[8:24] = levels
    views = [whole, large[:, :32], large[:, 32:]]
    pixels = torch.stack([normalized(view, CLIP_MEAN, CLIP_STD) for view in views])[None]
    sizes = torch.tensor([[size[1], size[0]]])
    with torch.no_grad():
        rows = model.model.get_image_features(pixels, image_sizes=sizes, vision_feature_layer=-2,
                                              vision_feature_select_strategy="default").pooler_output[0]
    put_llava_tower(folder / "llava-next.mmproj.gguf", model, layers=3, pinpoints=pinpoints)

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels, image_sizes=sizes).logits[0]

    prompt = [5, 6, 7] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]
    return keep(folder, "llava-next", size, seed, rows, prompt, logits_of)


def internvl(folder):
    """A class token, scales of what a layer adds, and a norm of four patches side by side."""
    vision = {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2,
              "patch_size": [8, 8], "image_size": [64, 64], "attention_bias": True}
    text = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 256,
            "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    config = transformers.InternVLConfig(vision_config=vision, text_config=text, image_token_id=1, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = randomized(transformers.InternVLForConditionalGeneration(config))
    size, seed = (64, 64), 14
    pixels = normalized(picture(*size, seed), IMAGENET_MEAN, IMAGENET_STD)[None]
    with torch.no_grad():
        rows = model.model.get_image_features(pixels, vision_feature_layer=-1,
                                              vision_feature_select_strategy="default").pooler_output[0]
    state = model.state_dict()
    out = tower_writer(folder / "internvl.mmproj.gguf", "internvl", model.config.vision_config, 64, image=64, patch=8,
                       normalization=(IMAGENET_MEAN, IMAGENET_STD))
    out.add_uint32("clip.vision.projector.scale_factor", 2)
    prefix = "model.vision_tower."
    put(out, "v.class_embd", state[prefix + "embeddings.cls_token"].flatten())
    put(out, "v.position_embd.weight", state[prefix + "embeddings.position_embeddings"][0])
    put_both(out, state, "v.patch_embd", prefix + "embeddings.patch_embeddings.projection")
    names = {"ln1": "layernorm_before", "ln2": "layernorm_after", "attn_q": "attention.q_proj", "attn_k": "attention.k_proj",
             "attn_v": "attention.v_proj", "attn_out": "attention.projection_layer", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
    put_layers(out, state, names, prefix + "encoder.layer.")
    for layer in range(2):
        for number in (1, 2):
            put(out, f"v.blk.{layer}.ls{number}.weight", state[f"{prefix}encoder.layer.{layer}.lambda_{number}"])
    for ours, theirs in {"0": "layer_norm", "1": "linear_1", "3": "linear_2"}.items():
        put_both(out, state, f"mm.model.mlp.{ours}", f"model.multi_modal_projector.{theirs}")
    close(out)
    out = text_writer(folder / "internvl.text.gguf", "qwen2", model.config.text_config)
    out.add_float32("qwen2.rope.freq_base", 1e4)
    put_plain_text(out, state, "model.language_model.")
    close(out)
    prompt = [5, 6, 7, 2] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels).logits[0]

    return keep(folder, "internvl", size, seed, rows, prompt, logits_of)


def lfm2vl(folder):
    """A picture of 12 by 8 patches on a table of 10 by 10: wider along one edge, narrower along the other."""
    vision = {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 8,
              "num_patches": 100, "vision_use_head": False}
    text = {"model_type": "lfm2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 256,
            "layer_types": ["conv", "full_attention"], "block_multiple_of": 32, "block_auto_adjust_ff_dim": False,
            "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    config = transformers.Lfm2VlConfig(vision_config=vision, text_config=text, image_token_id=1, projector_hidden_size=96)
    config._attn_implementation = "eager"
    model = randomized(transformers.Lfm2VlForConditionalGeneration(config))
    size, seed = (96, 64), 15
    lines, columns = size[1] // 8, size[0] // 8
    pixels = normalized(picture(*size, seed)).reshape(3, lines, 8, columns, 8).permute(1, 3, 2, 4, 0).reshape(1, lines * columns, -1)
    shapes, mask = torch.tensor([[lines, columns]]), torch.ones(1, lines * columns, dtype=torch.long)
    with torch.no_grad():
        rows = model.model.get_image_features(pixels, spatial_shapes=shapes, pixel_attention_mask=mask).pooler_output[0]
    state = model.state_dict()
    out = tower_writer(folder / "lfm2vl.mmproj.gguf", "lfm2", model.config.vision_config, 64, image=80)
    out.add_uint32("clip.vision.image_min_pixels", 4 * 16 * 16)
    out.add_uint32("clip.vision.image_max_pixels", 256 * 16 * 16)
    out.add_uint32("clip.vision.projector.scale_factor", 2)
    prefix = "model.vision_tower."
    kernel = state[prefix + "embeddings.patch_embedding.weight"]
    put_siglip(out, {**state, prefix + "embeddings.patch_embedding.weight": kernel.reshape(-1, 8, 8, 3).permute(0, 3, 1, 2)}, prefix)
    for ours, theirs in {"mm.input_norm": "layer_norm", "mm.1": "linear_1", "mm.2": "linear_2"}.items():
        put_both(out, state, ours, f"model.multi_modal_projector.{theirs}")
    close(out)
    put_lfm2_text(folder / "lfm2vl.text.gguf", model.config.text_config, state, "model.language_model.")
    prompt = [5, 6, 7, 2] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels, spatial_shapes=shapes, pixel_attention_mask=mask).logits[0]

    return keep(folder, "lfm2vl", size, seed, rows, prompt, logits_of)


def put_lfm2_text(path, config, state, prefix):
    heads = [config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types]
    shown = {**config.to_dict(), "rms_norm_eps": config.norm_eps, "num_key_value_heads": heads}
    out = text_writer(path, "lfm2", types.SimpleNamespace(**shown))
    out.add_float32("lfm2.rope.freq_base", 1e4)
    out.add_uint32("lfm2.shortconv.l_cache", config.conv_L_cache)
    put(out, "token_embd.weight", state[prefix + "embed_tokens.weight"])
    put(out, "token_embd_norm.weight", state[prefix + "embedding_norm.weight"])
    names = {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3",
             "ffn_down": "feed_forward.w2"}
    mixers = {"conv": {"shortconv.in_proj": "conv.in_proj", "shortconv.out_proj": "conv.out_proj"},
              "full_attention": {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
                                 "attn_output": "self_attn.out_proj", "attn_q_norm": "self_attn.q_layernorm",
                                 "attn_k_norm": "self_attn.k_layernorm"}}
    for layer, kind in enumerate(config.layer_types):
        theirs = f"{prefix}layers.{layer}."
        for to, source in {**names, **mixers[kind]}.items():
            put_both(out, state, f"blk.{layer}.{to}", theirs + source)
        if kind == "conv":
            # The taps stay in float32, as in converted files.
            taps = state[theirs + "conv.conv.weight"].squeeze(1).float().contiguous().numpy()
            out.add_tensor(f"blk.{layer}.shortconv.conv.weight", taps)
    close(out)


def clip_vision():
    return {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "num_attention_heads": 2, "patch_size": 8, "image_size": 32, "projection_dim": 48}


def llama_text():
    return {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCAB,
            "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
            "tie_word_embeddings": False}


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


def put_qwen3vl_tower(out, state, prefix, deepstack):
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
    for number, layer in enumerate(deepstack):
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


def put_qwen2vl_tower(out, state, prefix, names):
    """The names of Qwen2-VL's and Qwen2.5-VL's towers."""
    kernel = state[prefix + "patch_embed.proj.weight"]
    put(out, "v.patch_embd.weight", kernel[:, :, 0])
    put(out, "v.patch_embd.weight.1", kernel[:, :, 1])
    names = {"ln1": "norm1", "ln2": "norm2", "attn_out": "attn.proj", **names}
    put_layers(out, state, names, prefix + "blocks.")
    layer = 0
    while f"{prefix}blocks.{layer}.attn.qkv.weight" in state:
        for part in ("weight", "bias"):
            qkv = state[f"{prefix}blocks.{layer}.attn.qkv.{part}"].chunk(3)
            for to, tensor in zip(("attn_q", "attn_k", "attn_v"), qkv):
                put(out, f"v.blk.{layer}.{to}.{part}", tensor)
        layer += 1
    for ours, theirs in {"v.post_ln": "ln_q", "mm.0": "mlp.0", "mm.2": "mlp.2"}.items():
        put_both(out, state, ours, f"{prefix}merger.{theirs}")


def put_qwen2vl_text(path, config, state, prefix):
    out = text_writer(path, "qwen2vl", config)
    out.add_float32("qwen2vl.rope.freq_base", 1e4)
    out.add_array("qwen2vl.rope.dimension_sections", [2, 3, 3, 0])
    put_plain_text(out, state, prefix)
    close(out)


def put_pixtral_tower(out, state, prefix):
    """The names of Pixtral's tensors; the rows of queries and keys are put in adjacent pairs."""
    put(out, "v.patch_embd.weight", state[prefix + "patch_conv.weight"])
    put(out, "v.pre_ln.weight", state[prefix + "ln_pre.weight"])
    names = {"ln1": "attention_norm", "ln2": "ffn_norm", "attn_q": "attention.q_proj", "attn_k": "attention.k_proj",
             "attn_v": "attention.v_proj", "attn_out": "attention.o_proj", "ffn_gate": "feed_forward.gate_proj",
             "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj"}
    put_layers(out, adjacent(state, prefix, {"q_proj": 2, "k_proj": 2}), names, prefix + "transformer.layers.")


def put_llava_tower(path, model, layers, pinpoints=None):
    """A file as the oldest converter writes it: the width of a row is that of CLIP, and the feed-forward names are exchanged."""
    state, vision = model.state_dict(), model.config.vision_config
    out = tower_writer(path, "mlp", vision, vision.projection_dim, layers=layers, normalization=(CLIP_MEAN, CLIP_STD), eps=1e-5,
                       act="quick_gelu")
    prefix = next(p for p in ("model.vision_tower.", "model.vision_tower.vision_model.") if p + "pre_layrnorm.weight" in state)
    put(out, "v.patch_embd.weight", state[prefix + "embeddings.patch_embedding.weight"])
    put(out, "v.class_embd", state[prefix + "embeddings.class_embedding"])
    put(out, "v.position_embd.weight", state[prefix + "embeddings.position_embedding.weight"])
    put_both(out, state, "v.pre_ln", prefix + "pre_layrnorm")
    names = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_down": "mlp.fc1", "ffn_up": "mlp.fc2"}
    of_layers = {name: value for name, value in state.items()
                 if not any(name.startswith(f"{prefix}encoder.layers.{layer}.") for layer in range(layers, 9))}
    put_layers(out, of_layers, names, prefix + "encoder.layers.")
    for ours, theirs in {"mm.0": "linear_1", "mm.2": "linear_2"}.items():
        put_both(out, state, ours, f"model.multi_modal_projector.{theirs}")
    if pinpoints:
        out.add_array("clip.vision.image_grid_pinpoints", [edge for height, width in pinpoints for edge in (width, height)])
        out.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
        out.add_array("clip.vision.feature_layer", [2])
        put(out, "model.image_newline", state["model.image_newline"])
    close(out)
    name = "llava-next" if pinpoints else "llava"
    put_llama_text(path.parent / f"{name}.text.gguf", model.config.text_config, state, "model.language_model.")


def put_llama_text(path, config, state, prefix):
    """The rows of queries and keys are put in adjacent pairs, as in converted files."""
    out = text_writer(path, "llama", config)
    out.add_float32("llama.rope.freq_base", 1e4)
    out.add_uint32("llama.rope.dimension_count", config.head_dim)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    put_plain_text(out, adjacent(state, prefix, heads), prefix)
    close(out)


def adjacent(state, prefix, heads):
    """Queries and keys with the two entries of each pair next to each other."""

    def rows(name, tensor):
        for part, count in heads.items():
            if name.startswith(prefix) and f".{part}." in name:
                halves = tensor.reshape(count, 2, -1, *tensor.shape[1:])
                return halves.swapaxes(1, 2).reshape(tensor.shape)
        return tensor

    return {name: rows(name, tensor) for name, tensor in state.items()}


def put_plain_text(out, state, prefix):
    put(out, "token_embd.weight", state[prefix + "embed_tokens.weight"])
    put(out, "output_norm.weight", state[prefix + "norm.weight"])
    if "lm_head.weight" in state:
        put(out, "output.weight", state["lm_head.weight"])
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    put_layers(out, state, names, prefix + "layers.", "blk.")


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


def tower_writer(path, projector, config, width, image=None, heads=None, layers=None, widths=None, eps=1e-6, patch=None,
                 normalization=((PIXELS_MEAN,) * 3, (PIXELS_STD,) * 3), act="gelu"):
    out = gguf.GGUFWriter(path, "clip")
    out.add_string("general.type", "mmproj")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.projector_type", projector)
    out.add_bool("clip.use_gelu", act == "gelu")
    if act == "silu":
        out.add_bool("clip.use_silu", True)
    dim, hidden = widths or (config.hidden_size, config.intermediate_size)
    key = "clip.vision."
    out.add_uint32(key + "image_size", image or config.image_size)
    out.add_uint32(key + "patch_size", patch or config.patch_size)
    out.add_uint32(key + "embedding_length", dim)
    out.add_uint32(key + "feed_forward_length", hidden)
    out.add_uint32(key + "projection_dim", width)
    out.add_uint32(key + "block_count", layers or config.num_hidden_layers)
    out.add_uint32(key + "attention.head_count", heads or config.num_attention_heads)
    out.add_float32(key + "attention.layer_norm_epsilon", eps)
    for part, numbers in zip(("image_mean", "image_std"), normalization):
        out.add_array(key + part, list(numbers))
    return out


def text_writer(path, family, config):
    out = gguf.GGUFWriter(path, family)
    out.add_context_length(256)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
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


def keep(folder, name, size, seed, rows, prompt, logits_of, of_picture=(1,)):
    """Writes numbers, and returns the case's line."""
    spread = rows.std().item()
    assert spread > 0.05 and torch.isfinite(rows).all(), f"{name}: {spread}"
    # The last token of the prompt is the first for which no two answers are close, and the answers vary.
    tried = ([*prompt[:-1], last] for last in range(prompt[-1], VOCAB))
    prompt, greedy = next((ids, greedy) for ids in tried if (greedy := most_likely(logits_of, ids)))
    with torch.no_grad():
        logits = logits_of(prompt)
    parts = [part.detach().float().numpy().ravel() for part in (rows, logits)]
    np.concatenate(parts).astype("<f4").tofile(folder / f"{name}.f32")
    shown = " ".join(str(-1 if token in of_picture else token) for token in prompt)
    return "\t".join(map(str, [name, *size, seed, *rows.shape, shown, VOCAB, " ".join(map(str, greedy))]))


def most_likely(logits_of, prompt):
    """The most likely tokens after a prompt, one after another; none if two are about as likely, or too few differ."""
    greedy = []
    with torch.no_grad():
        while len(greedy) < GREEDY:
            (first, second), tokens = logits_of([*prompt, *greedy])[-1][MARKS:].topk(2)
            if first - second < MARGIN:
                return []
            greedy.append(tokens[0].item() + MARKS)
    return greedy if len(set(greedy)) >= DISTINCT else []


def randomized(model, gain=1.3, head=None):
    """Parameters that f16 has, which make attention sharp, norms and biases effective. With a seed `head` the projection of logits
    is another one, of which the answers vary."""
    model.eval()
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        with torch.no_grad():
            if parameter.ndim == 1 and name.endswith("weight"):
                is_shifted = ("language_model" in name or "soft_emb" in name) and "linear_attn" not in name
                shifts = any(family in type(model).__name__ for family in ("Gemma3", "Qwen3_5"))
                around = 0.0 if is_shifted and shifts else 1.0
                if "Gemma3" in type(model).__name__ and "post_" in name and "language_model" in name:
                    # Layers add more to the stream than the embedding, whose token would follow itself.
                    around = 2.0
                parameter.copy_(around + 0.2 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.2 * noise)
            elif "embed" in name and parameter.ndim == 2:
                parameter.copy_(noise / parameter.shape[1] ** 0.5 if "tokens" in name else 0.5 * noise)
            elif ".experts." in name:
                parameter.copy_(gain * noise / parameter.shape[-1] ** 0.5)
            elif name.endswith("mm_input_projection_weight"):
                parameter.copy_(noise / parameter.shape[0] ** 0.5)
            else:
                parameter.copy_(gain * noise / (parameter[0].numel() ** 0.5))
            if name == "lm_head.weight" and head is not None:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(head))
                parameter.copy_(gain * noise / parameter.shape[1] ** 0.5)
            parameter.copy_(parameter.half().float())
    return model


def normalized(levels, mean=(PIXELS_MEAN,) * 3, std=(PIXELS_STD,) * 3):
    """(3, height, width) in float32, as transformers' processors compute it."""
    scaled = (levels.astype(np.float64) * (1 / 255)).astype(np.float32)
    numbers = (scaled - np.array(mean, np.float32)) / np.array(std, np.float32)
    return torch.from_numpy(numbers.transpose(2, 0, 1).copy())


def blocks(pixels, patch, merge):
    """Patches in blocks of merge by merge, (patches, 3, 1, patch, patch)."""
    _, height, width = pixels.shape
    rows, columns = height // patch // merge, width // patch // merge
    cut = pixels.reshape(3, rows, merge, patch, columns, merge, patch)
    return cut.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, 1, patch, patch)


if __name__ == "__main__":
    main()
