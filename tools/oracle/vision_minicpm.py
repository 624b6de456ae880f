"""The cases of MiniCPM-V: a part of `vision.py`, which has their format.

Version 4.6 is transformers' own class. It has none of the versions with a resampler, whose code comes with their weights: these
are computed by an implementation of the published arithmetic (`resampler.py` of MiniCPM-V 2.6) from transformers' tower of
Idefics 2, which is the same SigLIP with bucketed places, and PyTorch's attention. Slices are those of transformers' image
processor of 4.6; without a merger its multiples are one patch.
"""

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionTransformer
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

from vision import (MILD_GAIN, VOCAB, blocks, close, keep, llama_text, normalized, picture, put, put_both, put_layers,
                    put_llama_text, put_plain_text, put_siglip, randomized, text_writer, tower_writer)

PATCH = 8
SLICE = 40
TABLE = 10


def minicpm25(folder):
    """MiniCPM-V 2.5: 96 queries, on a llama; the version and the queries are those that a file without the keys has."""
    # Of these weights, the answers vary.
    torch.manual_seed(105)
    vision = vision_config(heads=2)
    tower = Idefics2VisionTransformer(vision)
    text = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**llama_text(), "hidden_size": 128, "head_dim": 32}))
    model = MiniCpmV(tower, Resampler(96, 128, 64), text)
    return resampler_of(folder, "minicpmv2.5", model, (30, 44), 21, None)


def minicpm26(folder):
    """MiniCPM-V 2.6: a picture and its slices, of other ratios than the table; two heads of attention."""
    vision = vision_config(heads=2)
    tower = Idefics2VisionTransformer(vision)
    text = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**qwen2_text(256)))
    model = MiniCpmV(tower, Resampler(8, 256, 64), text)
    return resampler_of(folder, "minicpmv2.6", model, (90, 44), 22, 3)


def minicpm46(folder):
    """MiniCPM-V 4.6: neighbors become one row after the first of three layers, and again in the projector."""
    return minicpm46_of(folder, "minicpmv4.6", "MiniCPMV4_6", 4, ((150, 70), 23))


def minicpm_ocr(folder):
    """MiniCPM-OCR, whose class is 4.6 in another mode: neighbors become one row in the projector alone."""
    torch.manual_seed(100)
    return minicpm46_of(folder, "minicpm-ocr", "MiniCPMOcr", 2, ((100, 60), 24))


def minicpm46_of(folder, name, family, merge, image):
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": PATCH,
              "image_size": TABLE * PATCH}
    config = getattr(transformers, family + "Config")(
        vision_config=vision, text_config={"model_type": "qwen2", **qwen2_text(64)}, insert_layer_id=0, image_token_id=1,
        video_token_id=4, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = randomized(getattr(transformers, family + "ForConditionalGeneration")(config), MILD_GAIN)
    size, seed = image
    views = [normalized(view) for view in slices(picture(*size, seed), merge * PATCH, slice=64)]
    sizes = torch.tensor([[view.shape[1] // PATCH, view.shape[2] // PATCH] for view in views], dtype=torch.int32)
    packed = torch.cat([pack(view) for view in views], dim=-1)[None]
    inputs = {"pixel_values": packed, "target_sizes": sizes}
    with torch.no_grad():
        rows = torch.cat(model.model.get_image_features(**inputs).pooler_output)
    out = tower_writer(folder / f"{name}.mmproj.gguf", "minicpmv4_6", model.config.vision_config, 64, image=64)
    out.add_uint32("clip.vision.projector.scale_factor", merge)
    out.add_array("clip.vision.wa_layer_indexes", [0])
    state = model.state_dict()
    put_siglip(out, state, "model.vision_tower.")
    attention = {f"attn_{ours}": f"self_attn.{theirs}_proj" for ours, theirs in
                 {"q": "q", "k": "k", "v": "v", "out": "out"}.items()}
    names = {"ln1": "layer_norm1", "ds_ln": "pre_norm", "ds_ffn_up": "linear_1", "ds_ffn_down": "linear_2", **attention}
    for ours, theirs in names.items() if merge > 2 else ():
        put_both(out, state, f"v.vit_merger.{ours}", f"model.vision_tower.vit_merger.{theirs}")
    for ours, theirs in {"input_norm": "pre_norm", "up": "linear_1", "down": "linear_2"}.items():
        put_both(out, state, f"mm.{ours}", f"model.merger.mlp.0.{theirs}")
    close(out)
    put_qwen2_text(folder / f"{name}.text.gguf", model.config.text_config, state, "model.language_model.")

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), **inputs).logits[0]

    return keep(folder, name, size, seed, rows, prompt_of(rows), logits_of)


class MiniCpmV(torch.nn.Module):
    """A tower, a resampler and a text model."""

    def __init__(self, tower, resampler, text):
        super().__init__()
        self.tower, self.resampler, self.text = tower, resampler, text

    def rows(self, view):
        """The rows of one slice, (3, height, width)."""
        lines, columns = view.shape[1] // PATCH, view.shape[2] // PATCH
        mask = torch.ones(1, lines, columns, dtype=torch.bool)
        hidden = self.tower(pixel_values=view[None], patch_attention_mask=mask).last_hidden_state
        return self.resampler(hidden[0], lines, columns)


class Resampler(torch.nn.Module):
    """Learned queries attend to patches, whose keys have their places added."""

    def __init__(self, queries, out, dim):
        super().__init__()
        self.query = torch.nn.Parameter(torch.zeros(queries, out))
        self.kv_proj = torch.nn.Linear(dim, out, bias=False)
        self.attn = torch.nn.MultiheadAttention(out, out // 128)
        self.ln_q, self.ln_kv, self.ln_post = (torch.nn.LayerNorm(out, eps=1e-6) for _ in range(3))
        self.proj = torch.nn.Parameter(torch.zeros(out, out))

    def forward(self, patches, lines, columns):
        seen = self.ln_kv(self.kv_proj(patches))
        places = sines(seen.shape[-1], lines, columns)
        attended, _ = self.attn(self.ln_q(self.query), seen + places, seen)
        return self.ln_post(attended) @ self.proj


def sines(out, lines, columns):
    """Sines and cosines of the column, then of the row, of each patch."""
    quarter = out // 4
    frequencies = 1.0 / 10000 ** (np.arange(quarter, dtype=np.float32) / np.float32(quarter))

    def of(places):
        angles = places[..., None].astype(np.float32) * frequencies.astype(np.float32)
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)

    down, across = np.meshgrid(np.arange(lines), np.arange(columns), indexing="ij")
    return torch.from_numpy(np.concatenate([of(across), of(down)], axis=-1).reshape(lines * columns, out))


def resampler_of(folder, name, model, size, seed, version):
    model = randomized(model, MILD_GAIN)
    views = [normalized(view) for view in slices(picture(*size, seed), PATCH)]
    with torch.no_grad():
        rows = torch.cat([model.rows(view) for view in views])
    state = model.state_dict()
    # The converter writes no width of a row.
    out = tower_writer(folder / f"{name}.mmproj.gguf", "resampler", model.tower.config, 0, image=SLICE)
    if version is not None:
        out.add_int32("clip.minicpmv_version", version)
        out.add_uint32("clip.minicpmv_query_num", len(model.resampler.query))
    put_siglip(out, state, "tower.")
    put_resampler(out, state, "resampler.")
    close(out)
    config = model.text.config
    text = {key.removeprefix("text."): value for key, value in state.items() if key.startswith("text.")}
    put_text = put_qwen2_text if config.model_type == "qwen2" else put_llama_text
    put_text(folder / f"{name}.text.gguf", config, text, "model.")

    def logits_of(ids):
        ids = torch.tensor([ids])
        embedded = model.text.model.embed_tokens(ids)
        embedded[ids == 1] = rows
        return model.text(inputs_embeds=embedded).logits[0]

    return keep(folder, name, size, seed, rows, prompt_of(rows), logits_of)


def prompt_of(rows):
    return [5, 6, 7, 2] + [1] * len(rows) + [3, 9, 10, 11, 12, 13]


def put_resampler(out, state, prefix):
    """As the converter: queries, keys and values apart, the last matrix transposed, and a table of places that nothing reads."""
    for part in ("ln_q", "ln_kv", "ln_post"):
        put_both(out, state, f"resampler.{part}", prefix + part)
    query = state[prefix + "query"].float().contiguous().numpy()
    out.add_tensor("resampler.query", query)
    put(out, "resampler.kv.weight", state[prefix + "kv_proj.weight"])
    put(out, "resampler.proj.weight", state[prefix + "proj"].T)
    put(out, "resampler.pos_embed_k", torch.zeros(4, query.shape[1]))
    for kind in ("weight", "bias"):
        joined = state[f"{prefix}attn.in_proj_{kind}"].chunk(3)
        for part, tensor in zip("qkv", joined):
            put(out, f"resampler.attn.{part}.{kind}", tensor)
        put(out, f"resampler.attn.out.{kind}", state[f"{prefix}attn.out_proj.{kind}"])


def put_qwen2_text(path, config, state, prefix):
    out = text_writer(path, "qwen2", config)
    out.add_float32("qwen2.rope.freq_base", 1e4)
    put_plain_text(out, state, prefix)
    close(out)


def slices(levels, unit, slice=SLICE):
    """The whole of a picture and its slices, as the image processor cuts them; edges are multiples of `unit`."""
    processor = MiniCPMV4_6ImageProcessorPil()
    height, width = levels.shape[:2]
    # Two patches along an edge become one row.
    rule = {"scale_resolution": slice, "patch_size": unit // 2, "downsample_mode": "4x"}
    image = Image.fromarray(levels)

    def resized(size):
        return np.asarray(image.resize((size[1], size[0]), Image.Resampling.BICUBIC))

    grid = processor.get_sliced_grid((height, width), 9, slice)
    views = [resized(processor.find_best_resize((height, width), allow_upscale=grid is None, **rule))]
    if grid is not None:
        large = resized(processor.get_refine_size((height, width), grid, allow_upscale=True, **rule))
        lines = np.split(large, grid[0], axis=0)
        views += [view for line in lines for view in np.split(line, grid[1], axis=1)]
    return views


def pack(view):
    """A picture as the processor packs it, (3, patch, patches * patch)."""
    _, height, width = view.shape
    cut = view.reshape(3, height // PATCH, PATCH, width // PATCH, PATCH)
    return cut.permute(0, 2, 1, 3, 4).reshape(3, PATCH, -1)


def vision_config(heads):
    config = transformers.Idefics2VisionConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                               num_attention_heads=heads, patch_size=PATCH, image_size=TABLE * PATCH,
                                               layer_norm_eps=1e-6, hidden_act="gelu_pytorch_tanh")
    config._attn_implementation = "eager"
    return config


def qwen2_text(width):
    return {"hidden_size": width, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 256, "bos_token_id": None,
            "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
