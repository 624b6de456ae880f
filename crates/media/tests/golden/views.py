"""Writes what the image processors of transformers make of pixels: `python views.py`, with transformers 5.24.0.

Each line of `views.tsv`: rule, width, height, pattern, and the SHA-256 of what the tower gets: for `u8` rules the bytes
of all views, (height, width, 3) each, for `f32` rules the patches, (patches, 3 · patch · patch), little endian.
"""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from pictures import pattern

RAW = dict(do_rescale=False, do_normalize=False, return_tensors="np")


def views(values):
    """Bytes of pictures in planes."""
    return b"".join(np.ascontiguousarray(np.moveaxis(v, 0, -1)).astype(np.uint8).tobytes() for v in values)


def smolvlm(image):
    processor = Idefics3ImageProcessorPil(size={"longest_edge": 256}, max_image_size={"longest_edge": 64})
    return views(processor.preprocess(image, do_pad=False, **RAW)["pixel_values"][0])


def gemma3(image):
    processor = Gemma3ImageProcessorPil(size={"height": 112, "width": 112}, resample=Image.Resampling.BILINEAR)
    return views(processor.preprocess(image, **RAW)["pixel_values"])


def llava(image):
    processor = LlavaImageProcessorPil(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    return views(processor.preprocess(image, **RAW)["pixel_values"])


def llava_next(image):
    points = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]
    processor = LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, image_grid_pinpoints=points
    )
    return views(processor.preprocess(image, **RAW)["pixel_values"][0])


def internvl(image):
    processor = GotOcr2ImageProcessorPil(size={"height": 56, "width": 56}, crop_to_patches=True)
    return views(processor.preprocess(image, **RAW)["pixel_values"])


def minicpm(image):
    processor = MiniCPMV4_6ImageProcessorPil(scale_resolution=112)
    found = processor.preprocess(image, **RAW)
    pixels, start, out = found["pixel_values"][0], 0, []
    for rows, columns in found["target_sizes"]:
        width = rows * columns * 14
        part = pixels[:, :, start : start + width].reshape(3, 14, rows, columns, 14)
        out.append(part.transpose(0, 2, 1, 3, 4).reshape(3, rows * 14, columns * 14))
        start += width
    return views(out)


def qwen(image):
    processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 28 * 28 * 40})
    found = processor.preprocess(image, return_tensors="np")["pixel_values"]
    # Both frames of a still image are equal.
    frames = found.reshape(found.shape[0], 3, 2, 14 * 14)
    return np.ascontiguousarray(frames[:, :, 0]).astype("<f4").tobytes()


def gemma4(image):
    processor = Gemma4ImageProcessorPil(max_soft_tokens=70)
    found = processor.preprocess(image, return_tensors="np")
    rows = int(found["num_soft_tokens_per_image"][0]) * 9
    # Its patches are (row, column, channel), and its levels go from 0 to 1.
    patches = found["pixel_values"][0][:rows].reshape(rows, 16, 16, 3).transpose(0, 3, 1, 2)
    return np.ascontiguousarray((patches - np.float32(0.5)) / np.float32(0.5)).astype("<f4").tobytes()


RULES = [smolvlm, gemma3, llava, llava_next, internvl, minicpm, qwen, gemma4]
CASES = [(100, 70, "noise"), (70, 200, "gradient"), (300, 40, "checks"), (57, 57, "noise"), (20, 31, "gradient")]

if __name__ == "__main__":
    lines = []
    for rule in RULES:
        for width, height, name in CASES:
            made = rule(Image.fromarray(pattern(name, width, height)))
            lines.append(f"{rule.__name__}\t{width}\t{height}\t{name}\t{hashlib.sha256(made).hexdigest()}")
    (Path(__file__).parent / "views.tsv").write_text("\n".join(lines) + "\n")
