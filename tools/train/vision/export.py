"""Writes the two files: `python -m vision.export RUN TEXT.gguf TOWER.gguf`. Matrices in F16, the rest in F32."""

import argparse
import pathlib

import gguf
import numpy as np
import torch

import export
import vocabulary
from vision import batches, network

NAME = "millrace-mini-vision"
CONTROLS = {token for token in batches.SPECIALS if "tool" not in token}
CONTROL, USER_DEFINED, NORMAL = 3, 4, 1


def described(writer, kind, about):
    writer.add_type(kind)
    writer.add_name(NAME)
    writer.add_author("Millrace")
    writer.add_license("MIT OR Apache-2.0")
    writer.add_description(about)
    writer.add_file_type(1)


def finished(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensor(writer, name, values, whole=False):
    writer.add_tensor(name, values.astype(np.float16 if values.ndim > 1 and not whole else np.float32))


def write_text(path, vocab, weights):
    """The part that reads and answers."""
    shape = network.text_shape(len(vocab.tokens))
    out = gguf.GGUFWriter(path, "llama")
    described(out, "model", "A little model that sees shapes, colors and digits; the text part. See docs/built-in-model.md.")
    out.add_context_length(shape.context)
    out.add_embedding_length(shape.dim)
    out.add_block_count(shape.layers)
    out.add_feed_forward_length(shape.ffn)
    out.add_head_count(shape.heads)
    out.add_head_count_kv(shape.kv_heads)
    out.add_key_length(shape.head_dim)
    out.add_value_length(shape.head_dim)
    out.add_rope_dimension_count(shape.head_dim)
    out.add_rope_freq_base(shape.rope_base)
    out.add_layer_norm_rms_eps(shape.eps)
    out.add_vocab_size(shape.vocab)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llama-bpe")
    out.add_token_list(vocab.tokens)
    specials = [CONTROL if token in CONTROLS else USER_DEFINED for token in batches.SPECIALS]
    out.add_token_types(specials + [NORMAL] * (len(vocab.tokens) - len(specials)))
    blank = vocabulary.BYTES[ord(" ")]
    out.add_token_merges([f"{blank} {blank}"])
    out.add_bos_token_id(vocab.ids["<|endoftext|>"])
    out.add_eos_token_id(vocab.ids["<|im_end|>"])
    out.add_add_bos_token(False)
    out.add_chat_template((pathlib.Path(__file__).parent / "template.jinja").read_text())
    for name, weight in weights.items():
        add_tensor(out, export.tensor_name(name), weight)
    finished(out)


def write_tower(path, weights):
    """The part that sees."""
    shape, text = network.TowerShape(), network.text_shape(0)
    out = gguf.GGUFWriter(path, "clip")
    described(out, "mmproj", "A little model that sees shapes, colors and digits; the tower. See docs/built-in-model.md.")
    out.add_clip_projector_type("idefics3")
    out.add_clip_has_vision_encoder(True)
    out.add_vision_use_gelu(True)
    out.add_vision_image_size(shape.image)
    out.add_vision_preproc_image_size(shape.image)
    out.add_vision_patch_size(shape.patch)
    out.add_vision_embedding_length(shape.dim)
    out.add_vision_feed_forward_length(shape.ffn)
    out.add_vision_block_count(shape.layers)
    out.add_vision_head_count(shape.heads)
    out.add_vision_attention_layernorm_eps(shape.eps)
    out.add_vision_projection_dim(text.dim)
    out.add_vision_projector_scale_factor(shape.shuffle)
    out.add_vision_image_mean([0.5] * 3)
    out.add_vision_image_std([0.5] * 3)
    for name, weight in weights.items():
        if name == "patch_embd.weight":
            weight = weight.reshape(shape.dim, 3, shape.patch, shape.patch)
        add_tensor(out, tower_name(name), weight, name.startswith(("patch", "position")))
    finished(out)


def tower_name(name):
    if name.startswith("layers."):
        return f"v.blk.{name.removeprefix('layers.')}"
    if name.startswith("fc."):
        return f"mm.model.{name}"
    return "v.position_embd.weight" if name == "position_embd" else f"v.{name}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("tower", type=pathlib.Path)
    args = parser.parse_args()
    kept = torch.load(args.run / "checkpoint.pt", weights_only=True)
    vocab = vocabulary.Vocabulary.load(args.run / "vocabulary.json", batches.SPECIALS)
    parts = {"text": {}, "tower": {}}
    for name, weight in kept["model"].items():
        part, rest = name.split(".", 1)
        if part in parts:
            parts[part][rest] = weight.float().numpy()
    write_text(args.text, vocab, parts["text"])
    write_tower(args.tower, parts["tower"])
    for path in (args.text, args.tower):
        print(f"{path}: {path.stat().st_size} bytes")
    print(f"step {kept['step']}, {kept['pictures']} pictures seen")


if __name__ == "__main__":
    main()
