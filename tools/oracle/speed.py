#!/usr/bin/env python3
"""Our speed beside llama.cpp's in one run: prefill of 512, decode of 1 and of 32 sequences.

    speed.py --examples target/release/examples MODEL...

Rounds alternate between the two; medians are printed. Two threads each. A figure holds for the
run it was made in only: machines drift.
"""

import argparse
import pathlib
import statistics
import subprocess
import time

import llama_cpp
from llama_cpp import llama_cpp as low

PREFILL, SEQUENCES, CONTEXT, STEPS = 512, 32, 64, 16
NAMES = "prefill 512", "decode 1", "decode 32"


class Rival:
    """llama.cpp with a context for SEQUENCES sequences."""

    def __init__(self, model, threads):
        low.llama_backend_init()
        self.model = low.llama_model_load_from_file(
            str(model).encode(), low.llama_model_default_params())
        params = low.llama_context_default_params()
        params.n_ctx = SEQUENCES * (CONTEXT + STEPS) + PREFILL
        params.n_batch = params.n_ubatch = PREFILL
        params.n_seq_max = SEQUENCES
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = threads
        self.context = low.llama_init_from_model(self.model, params)
        self.batch = low.llama_batch_init(PREFILL, 0, 1)

    def close(self):
        low.llama_batch_free(self.batch)
        low.llama_free(self.context)
        low.llama_model_free(self.model)

    def run(self, rows):
        """Rows of (token, position, sequence, wants logits)."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = wants
        if low.llama_decode(self.context, self.batch):
            raise RuntimeError("llama_decode failed")
        low.llama_synchronize(self.context)

    def clear(self):
        low.llama_memory_clear(low.llama_get_memory(self.context), True)

    def prefill(self):
        self.clear()
        rows = [(i * 37 % 1000, i, 0, i == PREFILL - 1) for i in range(PREFILL)]
        start = time.perf_counter()
        self.run(rows)
        return PREFILL / (time.perf_counter() - start)

    def decode(self, sequences):
        self.clear()
        for sequence in range(sequences):
            self.run([(i, i, sequence, False) for i in range(CONTEXT)])
        start = time.perf_counter()
        for step in range(STEPS):
            self.run([(i + step, CONTEXT + step, i, True) for i in range(sequences)])
        return sequences * STEPS / (time.perf_counter() - start)

    def rates(self):
        return self.prefill(), self.decode(1), self.decode(SEQUENCES)


def ours(examples, model):
    text = subprocess.run([examples / "speed", model, "1"], check=True, capture_output=True,
                          text=True).stdout
    return [float(line.split()[-2]) for line in text.splitlines() if "tokens/s" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    low.llama_log_set(QUIET, None)
    for model in args.models:
        pairs = []
        rival = Rival(model, 2)
        for _ in range(args.rounds):
            rival.prefill()  # warm
            pairs.append((rival.rates(), ours(args.examples, model)))
            print(f"{model.name:18} llama.cpp, ours: {pairs[-1]}", flush=True)
        rival.close()
        for i, name in enumerate(NAMES):
            theirs, own = (statistics.median(pair[side][i] for pair in pairs) for side in (0, 1))
            print(f"{model.name:18} {name:12} llama.cpp {theirs:8.1f}  ours {own:8.1f} tokens/s  "
                  f"ratio {own / theirs:.2f}", flush=True)


QUIET = llama_cpp.llama_log_callback(lambda level, text, data: None)

if __name__ == "__main__":
    main()
