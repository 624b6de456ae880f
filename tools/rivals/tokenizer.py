"""The byte-level vocabulary of a GGUF file as a folder that transformers reads: load tools count and cut prompts with it."""

import json

import gguf

CONTROL = 3  # type of a token that text does not contain
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def write(model, folder):
    """Writes tokenizer.json and tokenizer_config.json; an error where the vocabulary is not byte-level BPE."""
    fields = gguf.GGUFReader(model).fields
    get = lambda key: fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else None
    if get("model") != "gpt2":
        raise RuntimeError(f"{model}: tokenizer.ggml.model is {get('model')}, not gpt2 (byte-level BPE)")
    tokens, kinds = get("tokens"), get("token_type")
    special = [{"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for id, (token, kind) in enumerate(zip(tokens, kinds)) if kind == CONTROL]
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
           "fuse_unk": False, "byte_fallback": False, "vocab": {token: id for id, token in enumerate(tokens)},
           "merges": [merge.split(" ", 1) for merge in get("merges")]}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
             "pre_tokenizer": BYTE_LEVEL, "post_processor": None, "decoder": BYTE_LEVEL, "model": bpe}
    eos = tokens[get("eos_token_id")]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, "pad_token": eos}))
