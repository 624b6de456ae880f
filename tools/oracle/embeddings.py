#!/usr/bin/env python3
"""Pooled hidden states of llama.cpp on synthetic models, kept as goldens for the cpu crate's tests.

    python embeddings.py --examples FOLDER-OF-THE-MODEL-CRATE'S-BUILT-EXAMPLES

Writes two files of crates/cpu/tests/goldens. `embeddings.txt`: for each decoder a prompt's ids, the last hidden state and
the mean of all, not normed. `encoders.txt`: for each model that was made for embeddings or for scores a text, or a query and
a document, the ids, and what the file's own pooling makes of them. Goldens hold llama.cpp's numbers only, never ours.
"""

import argparse
import pathlib
import subprocess
import tempfile

import llama_cpp
import numpy as np

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "crates" / "cpu" / "tests" / "goldens"
MADE_BY = f"# llama.cpp as carried by llama-cpp-python {llama_cpp.__version__}; made by tools/oracle/embeddings.py"
DECODERS = [f"{family} preset=tiny-{family} mix=F32" for family in ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")]
TOKENS, CONTEXT = 40, 256

TEXT = "The water of the river is in the mill, and the wheel of the mill (1 of 3) turns: is Paris the capital?"
QUERY, DOCUMENT = "the capital of france", "paris is the capital, and a river is in it"
# Of each the entries that llama.cpp gives in place of a vector, and whether it reads a query and a document. It knows only the
# first token type of BERT, so that a pair is compared where the model has no more.
ENCODERS = [
    ("bert", None, False),
    ("bert-rank", 1, False),
    ("xlm-r", None, False),
    ("xlm-r-rank", 1, True),
    ("nomic-bert", None, False),
    ("nomic-bert-moe", None, False),
    ("gemma-embedding", None, False),
    ("qwen3-embedding", None, False),
    ("qwen3-reranker", 2, True),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=pathlib.Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model.gguf"

        def written(case):
            subprocess.run([args.examples / "synth", case, model], check=True)
            return str(model)

        (GOLDENS / "embeddings.txt").write_text("\n".join([MADE_BY, *decoders(written)]) + "\n")
        (GOLDENS / "encoders.txt").write_text("\n".join([MADE_BY, *encoders(written)]) + "\n")


def decoders(written):
    for case in DECODERS:
        model = written(case)
        vocab = llama_cpp.Llama(model, vocab_only=True, verbose=False).n_vocab()
        ids = [(7 + 37 * i) % vocab for i in range(TOKENS)]
        yield from (f"case {case}", "ids " + " ".join(map(str, ids)))
        for name, pooling in (("last", llama_cpp.LLAMA_POOLING_TYPE_LAST), ("mean", llama_cpp.LLAMA_POOLING_TYPE_MEAN)):
            yield f"{name} " + shown(pooled(model, ids, pooling))


def encoders(written):
    for name, entries, is_pair in ENCODERS:
        case = f"{name} preset=tiny-{name} mix=F32"
        model = written(case)
        yield f"case {case}"
        yield from (f"query {QUERY}", f"document {DOCUMENT}") if is_pair else (f"text {TEXT}",)
        ids = pair_ids(model) if is_pair else text_ids(model)
        yield "ids " + " ".join(map(str, ids))
        yield "vector " + shown(pooled(model, ids, llama_cpp.LLAMA_POOLING_TYPE_UNSPECIFIED, entries))


def text_ids(model):
    return llama_cpp.Llama(model, vocab_only=True, verbose=False).tokenize(TEXT.encode(), add_bos=True, special=False)


def pair_ids(model):
    """Query and document as llama.cpp's server joins them."""
    llama = llama_cpp.Llama(model, vocab_only=True, verbose=False)
    template = llama.metadata.get("tokenizer.chat_template.rerank")
    if template:
        prompt = template.replace("{query}", QUERY).replace("{document}", DOCUMENT)
        return llama.tokenize(prompt.encode(), add_bos=False, special=True)
    query, document = (llama.tokenize(text.encode(), add_bos=False, special=False) for text in (QUERY, DOCUMENT))
    separator = llama_cpp.llama_vocab_sep(llama_cpp.llama_model_get_vocab(llama.model))
    return [llama.token_bos(), *query, llama.token_eos(), separator, *document, llama.token_eos()]


def pooled(model, ids, pooling, entries=None):
    llama = llama_cpp.Llama(model, embedding=True, pooling_type=pooling, n_ctx=CONTEXT, n_batch=CONTEXT,
                            n_ubatch=CONTEXT, n_threads=1, flash_attn=False, verbose=False)
    width, context = entries or llama.n_embd(), llama.ctx
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


def shown(vector):
    return " ".join(f"{x:.6g}" for x in vector)


if __name__ == "__main__":
    main()
