#!/usr/bin/env python3
"""Ours beside llama.cpp on encoders in true shapes: texts per second at 32 and 512 tokens, in turn.

    python encoders.py --millrace target/release/millrace --examples target/release/examples --models FOLDER [--rounds 3]

Batches have 512 tokens on both sides: sixteen texts, or one. Ids are given, so no tokenizer is measured.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

from llama_cpp import llama_cpp as low

SHAPES = {"nomic-embed-text": "base-nomic-bert", "a reranker of BERT base": "base-bert-rank"}
# llama.cpp calls this until the process ends, so that it must not be collected.
SILENT = low.llama_log_callback(lambda *_: None)
ROWS, TEXT_TOKENS, FIRST_WORD, WORDS = 512, (32, 512), 5, 60


class Encoder:
    """llama.cpp with one encoder."""

    def __init__(self, path, threads):
        low.llama_log_set(SILENT, None)
        low.llama_backend_init()
        self.model = low.llama_model_load_from_file(str(path).encode(), low.llama_model_default_params())
        params = low.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = ROWS
        params.n_seq_max = ROWS // min(TEXT_TOKENS)
        params.kv_unified, params.embeddings = True, True
        params.n_threads = params.n_threads_batch = threads
        self.context = low.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp gives no context for {path}")
        self.batch = low.llama_batch_init(ROWS, 0, 1)

    def texts_per_s(self, tokens):
        texts = ROWS // tokens
        self.batch.n_tokens = ROWS
        for row in range(ROWS):
            text, at = divmod(row, tokens)
            self.batch.token[row], self.batch.pos[row] = FIRST_WORD + (text + at) * 37 % WORDS, at
            self.batch.n_seq_id[row], self.batch.seq_id[row][0], self.batch.logits[row] = 1, text, True
        for _ in range(2):  # the first is the warm-up
            begin = time.perf_counter()
            if low.llama_encode(self.context, self.batch):
                raise RuntimeError("llama_encode failed")
            low.llama_synchronize(self.context)
            seconds = time.perf_counter() - begin
        return texts / seconds

    def close(self):
        low.llama_batch_free(self.batch)
        low.llama_free(self.context)
        low.llama_model_free(self.model)


def ours(args, path):
    """Texts per second by their tokens, of one round."""
    environment = os.environ | {"MILLRACE_THREADS": str(args.threads)}
    told = subprocess.check_output([args.examples / "encoder_speed", path, "1"], env=environment, text=True)
    return {row["tokens"]: row["texts_per_s"] for row in map(json.loads, told.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millrace", type=pathlib.Path, required=True, help="our release binary")
    parser.add_argument("--examples", type=pathlib.Path, required=True, help="the folder with `encoder_speed`")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder for synthetic models")
    parser.add_argument("--formats", default="F16,Q8_0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    print(f"{args.threads} threads, medians of {args.rounds} rounds in turn\n\n| shape | tokens | ours, texts/s | llama.cpp | ratio |\n|---|---|---|---|---|")
    for shape, preset in SHAPES.items():
        for format in args.formats.split(","):
            path = args.models / f"{preset}-{format}.gguf"
            if not path.exists():
                subprocess.run([args.millrace, "synth", path, "--preset", preset, "--quant", format], check=True, stdout=subprocess.DEVNULL)
            own, theirs = {t: [] for t in TEXT_TOKENS}, {t: [] for t in TEXT_TOKENS}
            for _ in range(args.rounds):
                for tokens, rate in ours(args, path).items():
                    own[tokens].append(rate)
                rival = Encoder(path, args.threads)
                for tokens in TEXT_TOKENS:
                    theirs[tokens].append(rival.texts_per_s(tokens))
                rival.close()
            for tokens in TEXT_TOKENS:
                one, other = statistics.median(own[tokens]), statistics.median(theirs[tokens])
                print(f"| {shape}, {format} | {tokens} | {one:.1f} | {other:.1f} | {one / other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
