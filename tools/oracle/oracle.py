#!/usr/bin/env python3
"""Our logits and tokens against llama.cpp's, on synthetic models.

For each case of crates/cpu/tests/goldens/cases.txt, `synth` (an example of the cpu crate)
writes a GGUF, llama.cpp runs a prompt and 64 greedy tokens after it, and `logits` (the other
example) runs the same ids. There are two references:

* exact: llama.cpp on the same weights, turned into f32 by llama.cpp;
* quantised: llama.cpp on the file as it is. For quantised weights and BF16 it rounds activations
  too, to 8 bits in blocks of up to 256 (or to BF16). We round in blocks of 32 (or not at all), so
  the two differ by the sum of both roundings, which random weights amplify from layer to layer.

Asked for are

* F32 and F16: cosine of the logits >= 0.9999 with both, at each position;
* BF16: the same with the exact reference, >= 0.999 over all positions with the other;
* quantised: >= 0.999 over all positions with both (with the exact one only, if the case is
  `deep`), and no further from the exact reference than llama.cpp's own quantised run is (SLACK);
* F32: the greedy id at every position, unless llama.cpp's own top two tie (TIE).

On AMX (MILLRACE_ISA=amx) floats are rounded to bf16, and short codes become int8 with one scale for 256
columns, beside activations of the same kind. There all are held to what quantised ones are, and a distance
may be SLACK_TILES of llama.cpp's; of formats in blocks of 32, for which llama.cpp rounds activations in
blocks of 32 too, SLACK_TILES_32.

With --write, the exact reference is kept as a golden file per case, which the crate's default
tests read. Goldens hold llama.cpp's numbers only, never ours.
"""

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "crates" / "cpu" / "tests" / "goldens"

# Greedy tokens generated after the prompt.
GREEDY = 64
# Least cosines.
COSINE_EXACT, COSINE_QUANTISED = 0.9999, 0.999
# By how much our distance (1 - cosine) from the exact logits may exceed llama.cpp's. Blocks of 32
# are as fine as its finest: on Q8_0 and the like both are as far, but for chance.
SLACK = 1.25
COSINE_TILES, SLACK_TILES, SLACK_TILES_32 = 0.996, 2.5, 4
TILES = os.environ.get("MILLRACE_ISA") == "amx"
# Two logits closer than this fraction of the row's spread (its standard deviation) may swap: the
# difference between two correct orders of summation, f16 keys and values included.
TIE = 5e-3
# Per golden row: the largest logits, and logits at a fixed stride.
TOP, SAMPLED = 8, 24


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
                        help="where the cpu crate's built examples are")
    parser.add_argument("--only", default="", help="run cases whose line contains this")
    parser.add_argument("--write", action="store_true", help="write golden files")
    return parser.parse_args()


def cases(only):
    for line in (GOLDENS / "cases.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line and only in line:
            yield line


def run_case(args, line, folder):
    name, *rest = line.split()
    options = dict(field.split("=", 1) for field in rest)
    context, mix = int(options.get("context", 256)), options["mix"]
    model, exact_model = folder / "model.gguf", folder / "exact.gguf"
    written = subprocess.run([args.examples / "synth", line, model], check=True, stdout=subprocess.PIPE)
    scales = [float(scale) for scale in written.stdout.split()]
    adapters = [(f"{model}.lora{i}", scale) for i, scale in enumerate(scales)]
    dequantise(model, exact_model)
    prompt = prompt_ids(model, int(options.get("prompt", 96)))
    ids, exact = run_exact(exact_model, prompt, context, adapters)
    quantised = exact if mix == "F32" else evaluate(load(model, context, adapters), ids)
    ours = run_ours(args, model, ids, context, folder, adapters)
    if args.write:
        write_golden(name, prompt, ids[len(prompt):], exact)
    return compare(name, mix, "deep" in options, exact, quantised, ours)


def dequantise(model, out):
    """The same model in f32, by llama.cpp's own reading of its formats."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
    params.allow_requantize = True
    params.nthread = 2
    paths = str(model).encode(), str(out).encode()
    if llama_cpp.llama_model_quantize(*paths, params):
        raise RuntimeError(f"llama.cpp cannot turn {model} into f32")


def prompt_ids(model, count):
    """Ids spread over the vocabulary, the same on every machine: a small linear congruence."""
    vocab = llama_cpp.Llama(str(model), vocab_only=True, verbose=False).n_vocab()
    state, ids = 12345, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append((state >> 8) % vocab)
    return ids


def load(model, context, adapters=()):
    llama = llama_cpp.Llama(str(model), n_ctx=context, n_batch=context, n_ubatch=context,
                            n_threads=2, n_threads_batch=2, logits_all=True, flash_attn=False,
                            verbose=False)
    adapt(llama, adapters)
    return llama


def adapt(llama, adapters):
    """Sets adapters with their scales."""
    if not adapters:
        return
    opened = [llama_cpp.llama_adapter_lora_init(llama.model, path.encode()) for path, _ in adapters]
    if not all(opened):
        raise RuntimeError("llama.cpp cannot read an adapter")
    count = len(opened)
    handles = (llama_cpp.llama_adapter_lora_p_ctypes * count)(*opened)
    scales = (ctypes.c_float * count)(*(scale for _, scale in adapters))
    if llama_cpp.llama_set_adapters_lora(llama.ctx, handles, count, scales):
        raise RuntimeError("llama.cpp cannot set the adapters")


def evaluate(llama, ids):
    llama.eval(ids)
    return np.array(llama.scores[:len(ids)], dtype=np.float64)


def run_exact(model, prompt, context, adapters):
    """The prompt's ids with GREEDY more, and the logits of every position."""
    llama, ids = load(model, context, adapters), list(prompt)
    llama.eval(prompt)
    for _ in range(GREEDY):
        ids.append(int(np.argmax(llama.scores[len(ids) - 1])))
        llama.eval(ids[-1:])
    return ids, np.array(llama.scores[:len(ids)], dtype=np.float64)


def run_ours(args, model, ids, context, folder, adapters):
    listed, out = folder / "ids.txt", folder / "logits.f32"
    listed.write_text(" ".join(map(str, ids)))
    given = [f"{scale}={path}" for path, scale in adapters]
    subprocess.run([args.examples / "logits", model, str(context), listed, out, *given], check=True)
    return np.fromfile(out, dtype="<f4").reshape(len(ids), -1).astype(np.float64)


def compare(name, mix, deep, exact, quantised, ours):
    each, whole = cosines(ours, exact).min(), cosine(ours, exact)
    theirs_each, theirs = cosines(ours, quantised).min(), cosine(ours, quantised)
    their_own = cosine(quantised, exact)
    wrong, ties = other_ids(exact, ours)
    if TILES and mix != "F32":
        slack = SLACK_TILES if "_K" in mix else SLACK_TILES_32
        good = whole >= COSINE_TILES and (mix in ("F16", "BF16") or 1 - whole <= slack * (1 - their_own))
    elif mix in ("F32", "F16"):
        good = min(each, theirs_each) >= COSINE_EXACT and (wrong == 0 or mix != "F32")
    elif mix == "BF16":
        good = each >= COSINE_EXACT and theirs >= COSINE_QUANTISED
    else:
        near = 1 - whole <= SLACK * (1 - their_own)
        good = whole >= COSINE_QUANTISED and near and (deep or theirs >= COSINE_QUANTISED)
    print(f"{'ok  ' if good else 'FAIL'} {name:22} ours to exact {whole:.6f} (worst row "
          f"{each:.6f}), ours to quantised {theirs:.6f} ({theirs_each:.6f}), quantised to exact "
          f"{their_own:.6f}; other ids {wrong}, ties {ties} of {len(ours)}; "
          f"max |d|/std {(np.abs(exact - ours).max(1) / exact.std(1)).max():.4f}", flush=True)
    return good


def cosines(a, b):
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def cosine(a, b):
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


def other_ids(exact, ours):
    wrong, ties = 0, 0
    for a, b in zip(exact, ours):
        if np.argmax(a) != np.argmax(b):
            second, first = np.sort(a)[-2:]
            tie = first - second < TIE * a.std()
            ties, wrong = ties + tie, wrong + (not tie)
    return wrong, ties


def write_golden(name, prompt, greedy, logits):
    """Rows: the middle and the end of the prompt, and the last of all."""
    n, vocab = len(prompt), logits.shape[1]
    lines = [f"# llama.cpp as carried by llama-cpp-python {llama_cpp.__version__}; "
             "made by tools/oracle/oracle.py --write",
             "prompt " + " ".join(map(str, prompt)), "greedy " + " ".join(map(str, greedy))]
    for position in (n // 2, n - 1, n + len(greedy) - 1):
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
