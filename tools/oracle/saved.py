#!/usr/bin/env python3
"""Our logits on models as Hugging Face's transformers saves them, against its own.

    python saved.py --examples FOLDER-OF-THE-MODEL-CRATE'S-BUILT-EXAMPLES

Needs torch, transformers and safetensors. Makes small random models of every family, in float32, saves each whole and
in shards, and compares logits at every position and the tokens that follow greedily. Ends with 1 if any differs by
more than what sums in another order and keys and values kept as f16 explain.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

TOKENS, CONTEXT, FOLLOWING = 80, 256, 24
# Of the logits' own spread.
ERROR_MAX = 5e-3
SHAPE = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": CONTEXT, "pad_token_id": None,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
        "long_factor": [1.0 + 0.5 * i for i in range(8)], "short_factor": [1.0 + 0.1 * i for i in range(8)]}
GEMMA3 = {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
WINDOWS = {"sliding_window": 16, "query_pre_attn_scalar": 16}
KINDS = ["sliding_attention", "full_attention"] * 2
# Name, class, what differs from the shape.
CASES = [
    ("llama", "Llama", {}),
    ("llama-tied", "Llama", {"tie_word_embeddings": True}),
    ("llama-biases", "Llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama-llama3", "Llama", {"rope_parameters": LLAMA3}),
    ("llama-yarn", "Llama", {"rope_parameters": YARN}),
    ("mistral", "Mistral", {"sliding_window": None}),
    ("qwen2", "Qwen2", {}),
    ("qwen3", "Qwen3", {"head_dim": 32}),
    ("qwen3-linear", "Qwen3", {"head_dim": 32, "rope_parameters": LINEAR, "tie_word_embeddings": True}),
    ("gemma2", "Gemma2", {**WINDOWS, "layer_types": KINDS}),
    ("gemma3", "Gemma3", {**WINDOWS, "layer_types": KINDS, "rope_parameters": GEMMA3}),
    ("phi3", "Phi3", {"sliding_window": None}),
    ("phi3-longrope", "Phi3", {"sliding_window": None, "rope_parameters": LONG,
                               "original_max_position_embeddings": 64}),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    torch.manual_seed(1)
    wrong = 0
    for name, family, more in CASES:
        if args.only not in name:
            continue
        model = made(family, more)
        for files in ("one", "several"):
            with tempfile.TemporaryDirectory() as folder:
                size = "10GB" if files == "one" else "100KB"
                model.save_pretrained(folder, max_shard_size=size)
                shards = len(list(pathlib.Path(folder).glob("*.safetensors")))
                wrong += compared(name, model, folder, shards, args.examples)
    sys.exit(1 if wrong else 0)


def made(family, more):
    kind = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **more, "attn_implementation": "eager"})
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Larger than training begins with: attention looks at some positions more than at others.
            torch.nn.init.normal_(weight, std=0.3 if weight.dim() == 1 else 1.5 / weight.shape[-1] ** 0.5)
            if "norm" in name and "Gemma" not in family:
                weight += 1
    return model


def compared(name, model, folder, shards, examples):
    ids = [(7 + 37 * i) % SHAPE["vocab_size"] for i in range(TOKENS)]
    with torch.no_grad():
        for _ in range(FOLLOWING):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        theirs = model(torch.tensor([ids])).logits[0].float().numpy()
    ours = logits(folder, ids, examples)
    error = float(np.sqrt(np.mean((ours - theirs) ** 2)) / theirs.std())
    same = int((ours.argmax(1) == theirs.argmax(1)).sum())
    followed = int((ours.argmax(1)[TOKENS - 1 : -1] == np.array(ids[TOKENS:])).sum())
    fine = error <= ERROR_MAX and followed == FOLLOWING
    print(f"{name:14} {shards:2} file(s)  error {error:.1e} of the spread, largest {abs(ours - theirs).max():.1e}, "
          f"best token alike {same}/{len(ids)}, greedy {followed}/{FOLLOWING}{'' if fine else '  WRONG'}", flush=True)
    return not fine


def logits(folder, ids, examples):
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "ids").write_text(" ".join(map(str, ids)))
        subprocess.run([examples / "logits", folder, str(CONTEXT), work / "ids", work / "out"], check=True)
        return np.fromfile(work / "out", dtype="<f4").reshape(len(ids), -1)


if __name__ == "__main__":
    main()
