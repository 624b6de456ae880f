#!/usr/bin/env python3
"""Goldens of towers in safetensors: the models of vision.py as transformers saves them.

    python saved_towers.py crates/cpu/tests/goldens/towers

Runs the cases of vision.py, whose files it writes anew, and saves each model whose class sees images, in float16:
NAME.config.json and NAME.safetensors, with transformers' own names and layouts. A model without a projection of logits is
saved in the class that has one.
"""

import copy
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers

import vision

WRAPPED = {"Idefics3Model": transformers.Idefics3ForConditionalGeneration}
SAVED = ("idefics3", "gemma3", "qwen3vl", "qwen2vl", "qwen2.5vl", "internvl", "lfm2vl", "pixtral", "mistral3", "llava", "llava-next",
         "gemma4v", "gemma4v-e", "gemma4uv", "minicpmv4.6", "qwen3.5", "qwen3.5-moe", "qwen3vl-moe", "llava-siglip", "granite-vision",
         "minicpm-ocr")


def main():
    folder = pathlib.Path(sys.argv[1])
    models = []
    original = vision.randomized

    def randomized(model, *gain, **more):
        models.append(original(model, *gain, **more))
        return models[-1]

    keep = vision.keep

    def kept(folder, name, *rest, **more):
        if name in SAVED:
            save(folder, name, models[-1])
        return keep(folder, name, *rest, **more)

    vision.randomized, vision.keep = randomized, kept
    vision.main()


def save(folder, name, model):
    wrapper = WRAPPED.get(type(model).__name__)
    if wrapper is not None:
        torch.manual_seed(1)
        whole = wrapper(model.config).eval()
        whole.model.load_state_dict(model.state_dict())
        model = whole
    with tempfile.TemporaryDirectory() as saved:
        # A copy: the case continues in float32.
        copy.deepcopy(model).half().save_pretrained(saved)
        config = json.loads((pathlib.Path(saved) / "config.json").read_text())
        (folder / f"{name}.config.json").write_text(json.dumps(config, indent=1) + "\n")
        shutil.copy(pathlib.Path(saved) / "model.safetensors", folder / f"{name}.safetensors")


if __name__ == "__main__":
    main()
