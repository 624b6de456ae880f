#!/usr/bin/env python3
"""vLLM's CPU build on a shape of random bf16 weights: tokens per second of a prompt and of decoding.

Prints one JSON object. Made for an environment of its own (see docs/performance.md): vLLM wants its own torch.
`python vllm_speed.py 1b --rounds 3 --threads 2`
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import tempfile
import time

SHAPES = {
    "1b": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
        "rope_theta": 500000.0,
    },
    "0.6b": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
        "rope_theta": 1000000.0,
    },
}
COMMON = {
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False, "mlp_bias": False,
}
PROMPT, DEPTH, STEPS = 512, 64, 16


def seconds(llm, sequences, prompt, tokens, params):
    """Of one call with prompts that nobody had before."""
    prompts = [{"prompt_token_ids": [random.randrange(3, 100000) for _ in range(prompt)]} for _ in range(sequences)]
    began = time.perf_counter()
    llm.generate(prompts, params(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False), use_tqdm=False)
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--eager", action="store_true", help="without torch.compile, which takes minutes")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the model's description: vLLM finds again what it compiled for it")
    args = parser.parse_args()
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{args.threads - 1}"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "2"
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM, SamplingParams

    folder = args.folder or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[args.shape] | COMMON))
    llm = LLM(model=str(folder), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_model_len=1024,
              max_num_seqs=64, enable_prefix_caching=False, enforce_eager=args.eager)
    seconds(llm, 1, PROMPT, 2, SamplingParams)
    found = {}
    for _ in range(args.rounds):
        found.setdefault("prefill", []).append(PROMPT / seconds(llm, 1, PROMPT, 1, SamplingParams))
        for sequences in (1, 8, 32):
            short, long = (seconds(llm, sequences, DEPTH, 1 + steps, SamplingParams) for steps in (0, STEPS))
            found.setdefault(f"decode{sequences}", []).append(sequences * STEPS / (long - short))
    print(json.dumps({name: round(statistics.median(each), 1) for name, each in found.items()} | {"rounds": found}))


if __name__ == "__main__":
    main()
