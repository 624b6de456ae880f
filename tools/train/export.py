"""Writes the checkpoint as GGUF: `python export.py RUN/checkpoint.pt DATA OUT.gguf`."""

import argparse
import pathlib

import gguf
import torch

import vocabulary

NAMES = {"embed.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
CONTROL, USER_DEFINED, NORMAL = 3, 4, 1
# Control tokens end and order turns; the others are shown, and read by whoever parses answers.
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def tensor_name(name):
    if name.startswith("layers."):
        _, layer, rest = name.split(".", 2)
        return f"blk.{layer}.{rest}"
    return NAMES[name]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--format", default="Q8_0", choices=["Q8_0", "F16", "F32"])
    args = parser.parse_args()
    kept = torch.load(args.checkpoint, weights_only=True)
    shape = kept["shape"]
    vocab = vocabulary.Vocabulary.load(args.data / "vocabulary.json")
    kind = gguf.GGMLQuantizationType[args.format]
    out = gguf.GGUFWriter(args.out, "llama")
    out.add_type("model")
    out.add_name("millrace-mini")
    out.add_author("Millrace")
    out.add_license("MIT OR Apache-2.0")
    out.add_description("Millrace's built-in model: small skills, a small world, tool calls. See docs/built-in-model.md.")
    out.add_file_type({"Q8_0": 7, "F16": 1, "F32": 0}[args.format])
    out.add_quantization_version(2)
    out.add_context_length(shape["context"])
    out.add_embedding_length(shape["dim"])
    out.add_block_count(shape["layers"])
    out.add_feed_forward_length(shape["ffn"])
    out.add_head_count(shape["heads"])
    out.add_head_count_kv(shape["kv_heads"])
    out.add_key_length(shape["head_dim"])
    out.add_value_length(shape["head_dim"])
    out.add_rope_dimension_count(shape["head_dim"])
    out.add_rope_freq_base(shape["rope_base"])
    out.add_layer_norm_rms_eps(shape["eps"])
    out.add_vocab_size(shape["vocab"])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llama-bpe")
    out.add_token_list(vocab.tokens)
    specials = [CONTROL if token in CONTROLS else USER_DEFINED for token in vocabulary.SPECIALS]
    out.add_token_types(specials + [NORMAL] * (len(vocab.tokens) - len(specials)))
    blank = vocabulary.BYTES[ord(" ")]
    out.add_token_merges([f"{blank} {blank}"])
    out.add_bos_token_id(vocab.ids["<|endoftext|>"])
    out.add_eos_token_id(vocab.ids["<|im_end|>"])
    out.add_add_bos_token(False)
    out.add_chat_template((pathlib.Path(__file__).parent / "template.jinja").read_text())
    for name, weight in kept["model"].items():
        values = weight.float().numpy()
        if values.ndim == 1 or args.format == "F32":
            out.add_tensor(tensor_name(name), values)
        else:
            out.add_tensor(tensor_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    print(f"{args.out}: {args.out.stat().st_size} bytes, step {kept['step']}, {kept['seen']} tokens seen")


if __name__ == "__main__":
    main()
