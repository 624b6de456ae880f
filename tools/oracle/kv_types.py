#!/usr/bin/env python3
"""Accuracy of a KV cache in 8 and 4 bits, beside f16, on a real model and a text.

The text's ids run through the model once for each type (`logits`, an example of the cpu crate). For each
position after the first quarter, the log-probability of the text's next token is compared with that of f16:
the mean and the largest difference, the perplexity, the mean divergence of the distributions (KL), and how
often both have the same likeliest token. Keys and values matter more the longer the context, so the ids
should be thousands.

    cargo build --release -p cpu --example logits
    python tools/oracle/kv_types.py --logits target/release/examples/logits MODEL.gguf TEXT.txt --ids 4096
"""

import argparse
import pathlib
import subprocess
import tempfile

import llama_cpp
import numpy as np

TYPES = ("f16", "q8_0", "q4_0")
# Positions whose logits are in memory at once.
BLOCK = 64


def main():
    args = parse_args()
    ids = text_ids(args.model, args.text, args.ids)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = pathlib.Path(folder)
        listed = folder / "ids.txt"
        listed.write_text(" ".join(map(str, ids)))
        files = {kind: run(args, listed, folder / kind, kind, len(ids)) for kind in TYPES}
        rows = {kind: compare(ids, files["f16"], files[kind]) for kind in TYPES}
    print(f"{args.model.name}: {len(ids)} tokens of {args.text.name}, the last {len(ids) - len(ids) // 4 - 1} compared")
    print("| type | mean difference of log-probabilities | largest | perplexity | mean KL | same likeliest token |")
    print("|---|---|---|---|---|---|")
    for kind, row in rows.items():
        print(f"| {kind} | {row['mean']:.5f} | {row['most']:.3f} | {row['perplexity']:.4f} | {row['kl']:.6f} "
              f"| {100 * row['same']:.2f} % |")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=pathlib.Path, required=True, help="the built example")
    parser.add_argument("--ids", type=int, default=2048, help="tokens of the text")
    parser.add_argument("--folder", help="where logits are written: four bytes by ids, vocabulary and types")
    parser.add_argument("model", type=pathlib.Path, help="GGUF")
    parser.add_argument("text", type=pathlib.Path)
    return parser.parse_args()


def text_ids(model, text, most):
    vocabulary = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    ids = vocabulary.tokenize(text.read_bytes(), add_bos=True, special=False)[:most]
    if len(ids) < 64:
        raise SystemExit(f"{text} has {len(ids)} tokens: at least 64 are needed")
    return ids


def run(args, ids, out, kind, count):
    """The logits, (ids, vocabulary), in a file."""
    command = [args.logits, args.model, count, ids, out, kind]
    subprocess.run([str(word) for word in command], check=True)
    return np.memmap(out, dtype="<f4", mode="r").reshape(count, -1)


def log_probabilities(logits):
    logits = np.asarray(logits, dtype=np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def compare(ids, exact, other):
    first, last = len(ids) // 4, len(ids) - 1
    differences, losses, divergences, same = [], [], [], []
    for start in range(first, last, BLOCK):
        end = min(last, start + BLOCK)
        a, b = log_probabilities(exact[start:end]), log_probabilities(other[start:end])
        said = np.asarray(ids[start + 1:end + 1])
        rows = np.arange(end - start)
        differences.append(np.abs(a[rows, said] - b[rows, said]))
        losses.append(-b[rows, said])
        divergences.append((np.exp(a) * (a - b)).sum(axis=1))
        same.append(a.argmax(axis=1) == b.argmax(axis=1))
    differences = np.concatenate(differences)
    return {
        "mean": differences.mean(),
        "most": differences.max(),
        "perplexity": np.exp(np.concatenate(losses).mean()),
        "kl": np.concatenate(divergences).mean(),
        "same": np.concatenate(same).mean(),
    }


if __name__ == "__main__":
    main()
