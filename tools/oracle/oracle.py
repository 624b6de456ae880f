#!/usr/bin/env python3
"""Our logits and tokens against llama.cpp's, on synthetic models.

For each case of crates/model/tests/goldens/cases.txt, `synth` (an example of the model crate)
writes a GGUF, llama.cpp runs the prompt and 64 greedy tokens after it, and `logits` (the other
example) runs the same ids. Compared are

* the cosine of the logits at every position: at least 0.9999 for F32, F16 and BF16, 0.999 for
  quantised weights;
* the greedy id at every position: equal, on F32, unless llama.cpp's own top two lie closer than
  rounding (see TIE).

With --write, what llama.cpp computed is kept as a golden file per case, which the crate's default
tests read. They hold llama.cpp's numbers only, never ours.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "crates" / "model" / "tests" / "goldens"

# Greedy tokens generated after the prompt.
GREEDY = 64
# Least cosine between two rows of logits.
COSINE_EXACT, COSINE_QUANTISED = 0.9999, 0.999
EXACT = ("F32", "F16", "BF16")
# Two logits closer than this fraction of the row's spread (its standard deviation) may swap: the
# difference between two correct orders of summation, f16 keys and values included.
TIE = 5e-3
# Per golden row: the largest logits, and logits at a fixed stride.
TOP, SAMPLED = 16, 32


def main():
    args = parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for line in cases(args.only):
            failures += not run_case(args, line, pathlib.Path(folder))
    print(f"{failures} cases failed" if failures else "all cases agree")
    return 1 if failures else 0


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=pathlib.Path, required=True,
                        help="where the model crate's built examples are")
    parser.add_argument("--only", default="", help="run cases whose line contains this")
    parser.add_argument("--write", action="store_true", help="write golden files")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the synthetic models here")
    return parser.parse_args()


def cases(only):
    for line in (GOLDENS / "cases.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line and only in line:
            yield line


def fields(line):
    name, *rest = line.split()
    return name, dict(field.split("=", 1) for field in rest)


def run_case(args, line, folder):
    name, options = fields(line)
    model = (args.keep or folder) / f"{name}.gguf"
    subprocess.run([args.examples / "synth", line, model], check=True)
    context = int(options.get("context", 256))
    prompt = prompt_ids(model, int(options.get("prompt", 96)))
    ids, theirs = run_oracle(model, prompt, context)
    ours = run_ours(args, model, ids, context, folder)
    if args.keep is None:
        model.unlink()
    good = compare(name, options["format"], len(prompt), ids, theirs, ours)
    if args.write:
        write_golden(name, prompt, ids[len(prompt):], theirs)
    return good


def prompt_ids(model, count):
    """Ids spread over the vocabulary, the same on every machine: a small linear congruence."""
    vocab = llama_cpp.Llama(str(model), vocab_only=True, verbose=False).n_vocab()
    state, ids = 12345, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append((state >> 8) % vocab)
    return ids


def run_oracle(model, prompt, context):
    """The prompt's ids with GREEDY more, and the logits of every position."""
    llama = llama_cpp.Llama(str(model), n_ctx=context, n_batch=context, n_ubatch=context,
                            n_threads=2, n_threads_batch=2, logits_all=True,
                            flash_attn=False, verbose=False)
    ids = list(prompt)
    llama.eval(prompt)
    for _ in range(GREEDY):
        ids.append(int(np.argmax(llama.scores[len(ids) - 1])))
        llama.eval(ids[-1:])
    return ids, np.array(llama.scores[:len(ids)], dtype=np.float32)


def run_ours(args, model, ids, context, folder):
    listed, out = folder / "ids.txt", folder / "logits.f32"
    listed.write_text(" ".join(map(str, ids)))
    subprocess.run([args.examples / "logits", model, str(context), listed, out], check=True)
    return np.fromfile(out, dtype="<f4").reshape(len(ids), -1)


def compare(name, form, prompt, ids, theirs, ours):
    a, b = theirs.astype(np.float64), ours.astype(np.float64)
    cosine = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    least = COSINE_EXACT if form in EXACT else COSINE_QUANTISED
    wrong, ties = 0, 0
    for row in range(len(ids)):
        if np.argmax(a[row]) != np.argmax(b[row]):
            second, first = np.sort(a[row])[-2:]
            tie = first - second < TIE * a[row].std()
            ties, wrong = ties + tie, wrong + (not tie)
    good = cosine.min() >= least and (wrong == 0 or form != "F32")
    print(f"{'ok  ' if good else 'FAIL'} {name:32} cosine min {cosine.min():.7f} "
          f"mean {cosine.mean():.7f}  max |d|/std {(np.abs(a - b).max(1) / a.std(1)).max():.5f}  "
          f"other id {wrong}/{len(ids)}, ties {ties}")
    return good


def write_golden(name, prompt, greedy, logits):
    """Rows: the first position, the middle and the end of the prompt, the last of all."""
    n, vocab = len(prompt), logits.shape[1]
    lines = [f"# llama.cpp as carried by llama-cpp-python {llama_cpp.__version__}; "
             "made by tools/oracle/oracle.py --write",
             "prompt " + " ".join(map(str, prompt)), "greedy " + " ".join(map(str, greedy))]
    for position in (0, n // 2, n - 1, n + len(greedy) - 1):
        row = logits[position]
        top = np.argsort(-row, kind="stable")[:TOP]
        sampled = [(7 + i * vocab // SAMPLED) % vocab for i in range(SAMPLED)]
        lines.append(f"spread {position} {row.std():.6g}")
        for kind, picked in (("top", top), ("sampled", sampled)):
            pairs = " ".join(f"{i}:{row[i]:.6g}" for i in picked)
            lines.append(f"{kind} {position} {pairs}")
    (GOLDENS / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
