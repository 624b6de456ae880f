#!/usr/bin/env python3
"""Prompts with one image as transformers' processors write them, for the families whose processor takes a tokenizer of any kind.

    python vision_prompts.py crates/generate/src/prompt/image_tests.rs > crates/generate/src/prompt/image_tests/processors.tsv

Needs torch, torchvision, transformers, numpy and Pillow. Templates and control tokens are those of the test. A line has the
test's name of the case and the text, as a JSON string, in which «N» stands for N tokens whose rows are the image's, marks of
ends of lines included.
"""

import json
import re
import sys

import numpy as np
import transformers as hf
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SOURCE = open(sys.argv[1], encoding="utf-8").read()
CONTROLS = re.findall(r'"(.*?)"', re.search(r"const CONTROLS: \[&str; \d+\] = \[(.*?)\];", SOURCE, re.S).group(1))
MESSAGES = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}]


def template(name):
    return re.search(rf'const {name}: &str =\s*"(.*?)";', SOURCE, re.S).group(1).encode().decode("unicode_escape")


def tokenizer(**named):
    """Bytes, and the control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer, bytes_only.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    controls = [*CONTROLS, "<|eos|>", "<|video|>"]
    bytes_only.add_special_tokens([AddedToken(control, special=True, normalized=False) for control in controls])
    made = hf.PreTrainedTokenizerFast(
        tokenizer_object=bytes_only, eos_token="<|eos|>", pad_token="<|eos|>", unk_token="<unk>", extra_special_tokens=named or None
    )
    for name, token in named.items():
        setattr(made, f"{name}_id", made.convert_tokens_to_ids(token))
    return made


def idefics3():
    names = {
        "fake_image_token": "<fake_token_around_image>",
        "image_token": "<image>",
        "global_image_token": "<global-img>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    pictures = hf.Idefics3ImageProcessor(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    return hf.Idefics3Processor(pictures, tokenizer(**names), image_seq_len=4)


def qwen():
    pictures = hf.Qwen2VLImageProcessor(patch_size=4, merge_size=2, min_pixels=64, max_pixels=1 << 20)
    names = {"image_token": "<|image_pad|>", "video_token": "<|video|>"}
    return hf.Qwen2VLProcessor(pictures, tokenizer(**names), hf.Qwen2VLVideoProcessor())


def gemma3():
    names = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    pictures = hf.Gemma3ImageProcessor(size={"height": 16, "width": 16})
    return hf.Gemma3Processor(pictures, tokenizer(**names), image_seq_length=4)


def pixtral():
    pictures = hf.PixtralImageProcessor(patch_size={"height": 4, "width": 4}, size={"longest_edge": 32})
    return hf.PixtralProcessor(pictures, tokenizer(), patch_size=4, spatial_merge_size=2)


def lfm2():
    names = {
        "image_token": "<image>",
        "image_start_token": "<|image_start|>",
        "image_end_token": "<|image_end|>",
        "image_thumbnail": "<|img_thumbnail|>",
    }
    sizes = {"tile_size": 16, "encoder_patch_size": 4, "downsample_factor": 2, "max_num_patches": 16}
    bounds = {"min_tiles": 2, "max_tiles": 2, "min_image_tokens": 1, "max_image_tokens": 4}
    return hf.Lfm2VlProcessor(hf.Lfm2VlImageProcessor(**sizes, **bounds), tokenizer(**names))


def llava_next():
    square = {"height": 16, "width": 16}
    pictures = hf.LlavaNextImageProcessor(size={"shortest_edge": 16}, crop_size=square, image_grid_pinpoints=[[16, 32], [32, 16]])
    rest = {"patch_size": 4, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return hf.LlavaNextProcessor(pictures, tokenizer(image_token="<image>"), **rest)


# The test's name of the case, the processor, its template or the text before it, the picture's size, tokens of rows.
CASES = (
    ("SmolVLM, tiles", idefics3, "SMOL_VLM", (32, 32), "<image>"),
    ("SmolVLM, two tiles", idefics3, "SMOL_VLM", (32, 16), "<image>"),
    ("Qwen", qwen, "QWEN", (24, 16), r"<\|image_pad\|>"),
    ("Gemma 3", gemma3, "GEMMA3", (24, 16), "<image_soft_token>"),
    ("Mistral", pixtral, "PIXTRAL", (24, 16), r"\[IMG\]|\[IMG_BREAK\]"),
    ("LFM2-VL, one picture", lfm2, "LFM2", (16, 16), "<image>"),
    ("LFM2-VL, two tiles and the whole", lfm2, "LFM2", (48, 16), "<image>"),
    (
        "LLaVA 1.6: the whole, then lines without padding, each with its end",
        llava_next,
        "<|im_start|>user\n<image>\nwhat?<|im_end|>\n",
        (32, 8),
        "<image>",
    ),
)


def main():
    for label, made, text, (width, height), rows in CASES:
        processor = made()
        if re.fullmatch("[A-Z0-9_]+", text):
            options = {"chat_template": template(text), "tokenize": False, "add_generation_prompt": True}
            text = processor.tokenizer.apply_chat_template(MESSAGES, **options)
        picture = Image.fromarray((np.arange(width * height * 3) % 256).astype("uint8").reshape(height, width, 3))
        (ids,) = processor(text=[text], images=[[picture]])["input_ids"]
        prompt = processor.tokenizer.decode(ids)
        count = lambda run: f"«{len(re.findall(rows, run.group()))}»"
        print(label, json.dumps(re.sub(f"(?:{rows})+", count, prompt), ensure_ascii=False), sep="\t")


main()
