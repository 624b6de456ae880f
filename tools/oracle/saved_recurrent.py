#!/usr/bin/env python3
"""Our logits on models with recurrent layers as Hugging Face's transformers saves them, against its own.

    python saved_recurrent.py --examples FOLDER-OF-THE-MODEL-CRATE'S-BUILT-EXAMPLES

As saved.py, for classes with gated DeltaNet or Mamba-2, whose tensors are stored in another order than in a GGUF.
`--save FOLDER` saves the models and compares nothing.
"""

import argparse
import pathlib
import sys
import tempfile

import saved
import torch
import transformers

LAYERS = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
DELTA = {
    "head_dim": 32, "layer_types": LAYERS, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
           "shared_expert_intermediate_size": 96}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_expand": 2}
GRANITE = {**MAMBA, "layer_types": LAYERS, "embedding_multiplier": 12.0, "residual_multiplier": 0.25,
           "attention_multiplier": 0.2, "logits_scaling": 8.0, "shared_intermediate_size": 96,
           "position_embedding_type": None, "num_local_experts": 0, "num_experts_per_tok": 0}
GRANITE_MOE = {**GRANITE, "num_local_experts": 6, "num_experts_per_tok": 2, "position_embedding_type": "rope"}
FALCON = {**MAMBA, "mamba_d_ssm": 128, "embedding_multiplier": 3.0, "lm_head_multiplier": 0.3, "key_multiplier": 0.7,
          "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.6, "ssm_in_multiplier": 1.7,
          "ssm_out_multiplier": 0.4, "ssm_multipliers": [0.9, 1.1, 0.6, 1.4, 0.8], "mlp_multipliers": [1.2, 0.5]}
MAMBA2 = {"num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 2, "expand": 2}
NEMOTRON = {"mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2,
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"]}
# Name, class, its configuration, what differs from the shape.
CASES = [
    ("qwen3-next", "Qwen3Next", "Qwen3Next", {**DELTA, **EXPERTS}),
    ("qwen3.5", "Qwen3_5", "Qwen3_5Text", DELTA),
    ("qwen3.5-tied", "Qwen3_5", "Qwen3_5Text", {**DELTA, "linear_num_value_heads": 8, "tie_word_embeddings": True}),
    ("qwen3.5-moe", "Qwen3_5Moe", "Qwen3_5MoeText", {**DELTA, **EXPERTS}),
    ("granite-h", "GraniteMoeHybrid", "GraniteMoeHybrid", GRANITE),
    ("granite-h-moe", "GraniteMoeHybrid", "GraniteMoeHybrid", GRANITE_MOE),
    ("granite-4", "GraniteMoeHybrid", "GraniteMoeHybrid",
     {**GRANITE, "layer_types": ["full_attention"] * 4, "position_embedding_type": "rope"}),
    ("falcon-h1", "FalconH1", "FalconH1", FALCON),
    ("falcon-h1-norm", "FalconH1", "FalconH1", {**FALCON, "mamba_rms_norm": True, "mamba_norm_before_gate": False}),
    ("falcon-h1-tied", "FalconH1", "FalconH1", {**FALCON, "tie_word_embeddings": True}),
    ("mamba2", "Mamba2", "Mamba2", MAMBA2),
    ("mamba2-tied", "Mamba2", "Mamba2", {**MAMBA2, "tie_word_embeddings": True}),
    ("nemotron-h", "NemotronH", "NemotronH", NEMOTRON),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=pathlib.Path)
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    torch.manual_seed(1)
    wrong = 0
    for name, family, config, more in CASES:
        if args.only not in name:
            continue
        model = made(family, config, more)
        if args.save:
            model.save_pretrained(args.save / name)
            continue
        for files in ("one", "several"):
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder, max_shard_size="10GB" if files == "one" else "100KB")
                shards = len(list(pathlib.Path(folder).glob("*.safetensors")))
                wrong += saved.compared(name, model, folder, shards, args.examples)
    sys.exit(1 if wrong else 0)


def made(family, config, more):
    shape = {field: value for field, value in saved.SHAPE.items() if not (family == "NemotronH" and "layers" in field)}
    config = getattr(transformers, f"{config}Config")(**{**shape, **more, "attn_implementation": "eager"})
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            torch.nn.init.normal_(weight, std=0.3 if weight.dim() == 1 else 1.5 / weight.shape[-1] ** 0.5)
            # Qwen's norms are stored as what is added to 1, but for those of gated DeltaNet.
            if "norm" in name and ("Qwen" not in family or "linear_attn" in name):
                weight += 1
    return model


if __name__ == "__main__":
    main()
