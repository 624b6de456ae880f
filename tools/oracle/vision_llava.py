"""The cases of LLaVA with SigLIP's tower: a part of `vision.py`, which has their format.

The files are as llama.cpp's converter for LLaVA writes them (`legacy-models/convert_image_encoder_to_gguf.py`): no norm after
the layers, the layers that are used alone, and no word of the activation, which the converter does not know. A picture has
half a patch at its right and its bottom that nothing sees, as one of 384 pixels with patches of 14.
"""

import numpy as np
import torch
import transformers
from PIL import Image

from vision import (MILD_GAIN, VOCAB, adjacent, close, keep, llama_text, normalized, picture, put, put_both, put_layers,
                    put_llama_text, put_plain_text, randomized, text_writer, tower_writer)

EDGE = 36
PATCH = 8


def llava_siglip(folder):
    """LLaVA 1.5's class: the rows of one layer before the last, all of them."""
    config = transformers.LlavaConfig(vision_config=siglip_vision(3), text_config=llama_text(), image_token_index=1,
                                      vision_feature_layer=-2, vision_feature_select_strategy="full")
    config._attn_implementation = "eager"
    model = randomized(transformers.LlavaForConditionalGeneration(config))
    size, seed = (EDGE, EDGE), 30
    pixels = normalized(picture(*size, seed))[None]
    with torch.no_grad():
        rows = model.model.get_image_features(pixels, vision_feature_layer=-2,
                                              vision_feature_select_strategy="full").pooler_output[0]
    put_tower(folder / "llava-siglip.mmproj.gguf", model, [2])
    put_llama_text(folder / "llava-siglip.text.gguf", model.config.text_config, model.state_dict(), "model.language_model.")

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels).logits[0]

    return keep(folder, "llava-siglip", size, seed, rows, prompt_of(rows), logits_of)


def granite_vision(folder):
    """Granite Vision: LLaVA 1.6's class with the outputs of several layers side by side, on a text that multiplies embeddings
    and rows of images. The picture is tiles with padding above and below."""
    layers = [-4, -2, -1]
    pinpoints = [[EDGE, EDGE], [EDGE, 2 * EDGE], [2 * EDGE, EDGE], [2 * EDGE, 2 * EDGE]]
    config = transformers.LlavaNextConfig(vision_config=siglip_vision(4), text_config=granite_text(), image_token_index=1,
                                          image_grid_pinpoints=pinpoints, vision_feature_layer=layers,
                                          vision_feature_select_strategy="full")
    config._attn_implementation = "eager"
    model = randomized(transformers.LlavaNextForConditionalGeneration(config), MILD_GAIN)
    with torch.no_grad():
        model.model.image_newline.copy_(model.model.image_newline.half().float())
    size, seed = (2 * EDGE, EDGE // 2), 31
    levels = picture(*size, seed)
    whole = np.asarray(Image.fromarray(levels).resize((EDGE, EDGE), Image.Resampling.BICUBIC))
    large = np.zeros((EDGE, 2 * EDGE, 3), np.uint8)
    large[EDGE // 4:EDGE // 4 + EDGE // 2] = levels
    views = [whole, large[:, :EDGE], large[:, EDGE:]]
    pixels = torch.stack([normalized(view) for view in views])[None]
    sizes = torch.tensor([[size[1], size[0]]])
    with torch.no_grad():
        rows = model.model.get_image_features(pixels, image_sizes=sizes, vision_feature_layer=layers,
                                              vision_feature_select_strategy="full").pooler_output[0]
    put_tower(folder / "granite-vision.mmproj.gguf", model, [5 + layer for layer in layers], pinpoints)
    put_granite_text(folder / "granite-vision.text.gguf", model.config.text_config, model.state_dict(), "model.language_model.")

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels, image_sizes=sizes).logits[0]

    return keep(folder, "granite-vision", size, seed, rows, prompt_of(rows), logits_of)


def prompt_of(rows):
    return [5, 6, 7] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]


def siglip_vision(layers):
    return {"model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": layers,
            "num_attention_heads": 2, "patch_size": PATCH, "image_size": EDGE, "vision_use_head": False}


def granite_text():
    return {"model_type": "granite", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 256,
            "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 0.5,
            "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}


def put_tower(path, model, layers, pinpoints=None):
    state = model.state_dict()
    out = tower_writer(path, "mlp", model.config.vision_config, 0, layers=max(layers), act="gelu_pytorch_tanh")
    out.add_array("clip.vision.feature_layer", layers)
    prefix = next(p for p in ("model.vision_tower.", "model.vision_tower.vision_model.") if p + "post_layernorm.weight" in state)
    put_both(out, state, "v.patch_embd", prefix + "embeddings.patch_embedding")
    put(out, "v.position_embd.weight", state[prefix + "embeddings.position_embedding.weight"])
    names = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_down": "mlp.fc1", "ffn_up": "mlp.fc2"}
    used = {name: value for name, value in state.items()
            if not any(name.startswith(f"{prefix}encoder.layers.{layer}.") for layer in range(max(layers), 9))}
    put_layers(out, used, names, prefix + "encoder.layers.")
    for ours, theirs in {"mm.0": "linear_1", "mm.2": "linear_2"}.items():
        put_both(out, state, ours, f"model.multi_modal_projector.{theirs}")
    if pinpoints:
        out.add_array("clip.vision.image_grid_pinpoints", [edge for height, width in pinpoints for edge in (width, height)])
        out.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
        put(out, "model.image_newline", state["model.image_newline"])
    close(out)


def put_granite_text(path, config, state, prefix):
    out = text_writer(path, "granite", config)
    out.add_float32("granite.rope.freq_base", 1e4)
    out.add_uint32("granite.rope.dimension_count", config.hidden_size // config.num_attention_heads)
    for key, field in {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                       "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}.items():
        out.add_float32(f"granite.{key}", getattr(config, field))
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    put_plain_text(out, adjacent(state, prefix, heads), prefix)
    close(out)
