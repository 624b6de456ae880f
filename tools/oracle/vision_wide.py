#!/usr/bin/env python3
"""Goldens of texts as wide as published ones, with weights as transformers initializes them.

    python vision_wide.py crates/cpu/tests/goldens/towers/wide

Runs the cases of vision.py with models of the same classes whose text has a width of 1024, and writes for each NAME.config.json,
NAME.tensors.tsv and NAME.f32: the configuration as transformers saves it, the tensors, and the logits of all positions of the
prompt. `cases.tsv` is that of vision.py without tokens.

Weights are not stored. A line of NAME.tensors.tsv has a tensor's name, its shape, and either `~`, a seed, a mean and a deviation,
from which `numbers` here and in crates/cpu/tests/it/tower_sources/wide.rs make the same numbers, or `=` and the numbers. Means
and deviations are those with which transformers initializes the tensor, but for three:

* a matrix of zeros (the projection of Gemma 3) has the deviation of the others, 0.02;
* gains of Gemma 4's norms of keys are one by the root of their number. Other families divide scores by it; in Gemma 4 it is the
  gain that does, and with gains of one a position would see one other alone;
* the seed of a router is the first with which rounding chooses no other expert.
"""

import copy
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import vision
from saved_towers import SAVED, WRAPPED

WIDTH, HEAD = 1024, 128
DEVIATION = 0.02
# The least distance of the scores of the last expert that is chosen and of the first that is not.
EXPERT_MARGIN = 0.02
ROUTER = "mlp.gate.weight"
FILE = "model.safetensors"
# Cases without a class in SAVED.
LEFT_OUT = ("idefics3_wide", "minicpm25", "minicpm26")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    vision.randomized = lambda model, *_gain, **_head: made.append(Wide(model)) or made[-1].model
    vision.keep = lambda _folder, *case, **more: made[-1].keep(folder, *case, **more)
    lines = []
    for case in vision.cases():
        if case.__name__ not in LEFT_OUT:
            with tempfile.TemporaryDirectory() as unused:
                lines.append(case(pathlib.Path(unused)))
            made.clear()
    assert {line.split("\t")[0] for line in lines} == set(SAVED)
    (folder / "cases.tsv").write_text("".join(line + "\n" for line in lines))


class Wide:
    """A model of a small one's class."""

    def __init__(self, small):
        kind = WRAPPED.get(type(small).__name__, type(small))
        torch.manual_seed(1)
        fresh = kind(widened(small.config))
        fresh.config._attn_implementation = "eager"
        stored, self.config = saved(fresh)
        self.table = {name: drawn_from(name, tensor, fresh.config.model_type) for name, tensor in stored.items()}
        with tempfile.TemporaryDirectory() as path:
            (pathlib.Path(path) / "config.json").write_text(json.dumps(self.config))
            tensors = {name: numbers(name, tensor.shape, *self.table[name]) for name, tensor in stored.items()}
            save_file(tensors, pathlib.Path(path) / FILE, {"format": "pt"})
            self.whole = kind.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        self.model = self.whole if kind is type(small) else self.whole.model

    def keep(self, folder, name, size, seed, rows, prompt, logits_of, of_picture=(1,)):
        """Writes a case, and returns its line."""
        self.choose_routers(lambda: logits_of(prompt))
        with torch.no_grad():
            logits = logits_of(prompt).float().numpy()
        assert rows.std() > 0.005 and np.isfinite(logits).all(), name
        logits.astype("<f4").tofile(folder / f"{name}.f32")
        (folder / f"{name}.config.json").write_text(json.dumps(self.config, indent=1) + "\n")
        (folder / f"{name}.tensors.tsv").write_text("".join(line + "\n" for line in self.lines()))
        print(name, f"rows {rows.std():.3f}, logits {logits.std():.3f}", flush=True)
        shown = " ".join(str(-1 if token in of_picture else token) for token in prompt)
        return "\t".join(map(str, [name, *size, seed, *rows.shape, shown, vision.VOCAB, ""]))

    def choose_routers(self, run):
        """Seeds of routers, layer by layer, for which no score is near the bound of those that are chosen."""
        routers = [(name, module) for name, module in self.whole.named_modules() if f"{name}.weight".endswith(ROUTER)]
        for name, module in routers:
            seed, mean, deviation = self.table[f"{name}.weight"]
            while margin_of(module, self.config["text_config"]["num_experts_per_tok"], run) < EXPERT_MARGIN:
                seed += 1
                self.table[f"{name}.weight"] = (seed, mean, deviation)
                weights = numbers(f"{name}.weight", module.weight.shape, seed, mean, deviation)
                module.weight.data.copy_(torch.from_numpy(weights.astype(np.float32)))

    def lines(self):
        """A line for each tensor; what the case has changed has its numbers."""
        for name, tensor in sorted(saved(self.whole)[0].items()):
            shape = " ".join(map(str, tensor.shape))
            if np.array_equal(tensor, numbers(name, tensor.shape, *self.table[name])):
                yield f"{name}\t{shape}\t~ " + " ".join(map(str, self.table[name]))
            else:
                assert tensor.size <= 4 * WIDTH, name
                yield f"{name}\t{shape}\t= " + " ".join(str(float(number)) for number in tensor.ravel())


def widened(config):
    """The configuration with a text of the width of published ones; the tower has the case's sizes and rows as wide as the text."""
    fields = config.to_dict()
    text, vision_fields = fields["text_config"], fields["vision_config"]
    heads = WIDTH // HEAD
    old_head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    is_grouped = text.get("num_key_value_heads") not in (None, text["num_attention_heads"])
    text.update(hidden_size=WIDTH, intermediate_size=WIDTH * 3 // 2, num_attention_heads=heads)
    if not text.get("block_auto_adjust_ff_dim", True):
        text["block_ff_dim"] = WIDTH * 3 // 2
    text["num_key_value_heads"] = 2 if is_grouped else heads
    for field, size in {"head_dim": HEAD, "global_head_dim": 2 * HEAD, "query_pre_attn_scalar": HEAD,
                        "hidden_size_per_layer_input": HEAD, "linear_key_head_dim": HEAD, "linear_value_head_dim": HEAD,
                        "moe_intermediate_size": WIDTH // 2, "shared_expert_intermediate_size": WIDTH // 2}.items():
        if text.get(field):
            text[field] = size
    sections = (text.get("rope_parameters") or {}).get("mrope_section", [])
    sections[:] = [pairs * HEAD // old_head for pairs in sections]
    if "out_hidden_size" in vision_fields:
        vision_fields["out_hidden_size"] = WIDTH
    if fields["model_type"] == "qwen2_vl":
        vision_fields["hidden_size"] = WIDTH
    if fields["model_type"] == "idefics3":
        # The case computes logits by the table of embeddings.
        fields["tie_word_embeddings"] = text["tie_word_embeddings"] = True
    return type(config).from_dict(fields)


def drawn_from(name, fresh, family):
    """A seed, a mean and a deviation."""
    fresh = fresh.astype(np.float64)
    mean = round(float(fresh.mean()), 2) + 0.0
    deviation = round(float(fresh.std()), 3) if np.isfinite(fresh).all() else 0.0
    if fresh.ndim > 1 and not fresh.any():
        deviation = DEVIATION
    if family.startswith("gemma4") and "language_model" in name and name.endswith("k_norm.weight"):
        mean = round(fresh.size ** -0.5, 4)
    return 0, mean, deviation


def numbers(name, shape, seed, mean, deviation):
    """Numbers in float16, about normal: sums of eight integers of 16 bits, of splitmix64 from a hash of the name on."""
    start = 0xCBF29CE484222325
    for byte in f"{seed} {name}".encode():
        start = (start ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    step = 0x9E3779B97F4A7C15
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        state = np.uint64(start) + np.arange(1, 2 * count + 1, dtype=np.uint64) * np.uint64(step)
        state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    sums = state.view(np.uint16).reshape(count, 8).sum(1, dtype=np.int64) - 8 * 65535 // 2
    spread = 65536.0 * (8 / 12) ** 0.5
    return (mean + sums * (deviation / spread)).astype(np.float32).astype(np.float16).reshape(shape)


def margin_of(router, chosen, run):
    """The least distance of a score that is chosen from one that is not."""
    margins = []

    def watch(_module, inputs):
        scores = torch.nn.functional.linear(inputs[0].reshape(-1, router.weight.shape[1]), router.weight)
        ordered = scores.sort(descending=True).values
        margins.append((ordered[:, chosen - 1] - ordered[:, chosen]).min().item())

    hook = router.register_forward_pre_hook(watch)
    with torch.no_grad():
        run()
    hook.remove()
    return min(margins)


def saved(model):
    """The tensors as transformers saves them in float16, and the configuration."""
    with tempfile.TemporaryDirectory() as path:
        copy.deepcopy(model).half().save_pretrained(path)
        config = json.loads((pathlib.Path(path) / "config.json").read_text())
        return load_file(pathlib.Path(path) / FILE), config


if __name__ == "__main__":
    main()
