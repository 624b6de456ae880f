#!/usr/bin/env python3
"""Pooled hidden states of llama.cpp on synthetic models, kept as goldens for the model crate's tests.

    python embeddings.py --examples FOLDER-OF-THE-MODEL-CRATE'S-BUILT-EXAMPLES

Writes crates/model/tests/goldens/embeddings.txt: for each case a prompt's ids, the last hidden state and the
mean of all, not normed. Goldens hold llama.cpp's numbers only, never ours.
"""

import argparse
import pathlib
import subprocess
import tempfile

import llama_cpp
import numpy as np

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "crates" / "model" / "tests" / "goldens"
CASES = [f"{family} preset=tiny-{family} mix=F32" for family in ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")]
TOKENS, CONTEXT = 40, 256


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=pathlib.Path, required=True)
    args = parser.parse_args()
    lines = [f"# llama.cpp as carried by llama-cpp-python {llama_cpp.__version__}; made by tools/oracle/embeddings.py"]
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            model = pathlib.Path(folder) / "model.gguf"
            subprocess.run([args.examples / "synth", case, model], check=True)
            vocab = llama_cpp.Llama(str(model), vocab_only=True, verbose=False).n_vocab()
            ids = [(7 + 37 * i) % vocab for i in range(TOKENS)]
            lines += [f"case {case}", "ids " + " ".join(map(str, ids))]
            for name, pooling in (("last", llama_cpp.LLAMA_POOLING_TYPE_LAST), ("mean", llama_cpp.LLAMA_POOLING_TYPE_MEAN)):
                vector = pooled(model, ids, pooling)
                lines.append(f"{name} " + " ".join(f"{x:.6g}" for x in vector))
    (GOLDENS / "embeddings.txt").write_text("\n".join(lines) + "\n")


def pooled(model, ids, pooling):
    llama = llama_cpp.Llama(str(model), embedding=True, pooling_type=pooling, n_ctx=CONTEXT, n_batch=CONTEXT,
                            n_ubatch=CONTEXT, n_threads=1, flash_attn=False, verbose=False)
    width, context = llama.n_embd(), llama.ctx
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, id in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = id, i, 1, True
        batch.seq_id[i][0] = 0
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError(f"llama.cpp cannot run {model}")
    vector = np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_seq(context, 0), (width,)).copy()
    llama_cpp.llama_batch_free(batch)
    return vector


if __name__ == "__main__":
    main()
