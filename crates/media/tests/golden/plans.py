"""Writes what the image processors of transformers plan: `python plans.py`, with transformers 5.24.0 (no torch needed).

Each line of `plans.tsv`: rule, width, height, then the outcome as `size of each canvas` (width x height, joined by `,`),
`rows x columns` of the tiles, number of rows, with tabs between. Rows follow the processors (`processing_*.py`).
"""

import math
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import transformers
from transformers.image_processing_utils import get_patch_output_size, select_best_resolution
from transformers.image_utils import ChannelDimension
from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize


class Shape:
    """An image without pixels: what the processors ask of one is its shape."""

    def __init__(self, height, width):
        self.shape = (3, height, width)
        self.ndim = 3


def qwen(width, height, patch, low, high):
    h, w = smart_resize(height, width, factor=patch * 2, min_pixels=low, max_pixels=high)
    return [(w, h)], (1, 1), h * w // (patch * 2) ** 2


class Sizes(Idefics3ImageProcessorPil):
    """The processor with a resize that only notes sizes."""

    def resize(self, image, size, resample=None, **kwargs):
        from transformers.models.idefics3 import image_processing_pil_idefics3 as module

        if size.longest_edge:
            return Shape(*module.get_resize_output_image_size(image, resolution_max_side=size.longest_edge))
        return Shape(size.height, size.width)


def idefics(width, height, longest, tile, patch, shuffle):
    processor = Sizes()
    first = processor.resize(Shape(height, width), SimpleNamespace(longest_edge=longest, height=None, width=None))
    large = processor.resize_for_vision_encoder(first, tile)
    h, w = large.shape[-2:]
    # As `split_images` counts.
    if h > tile or w > tile:
        grid = ((h - tile) // tile + 1, (w - tile) // tile + 1)
        canvases, count = [(w, h), (tile, tile)], grid[0] * grid[1] + 1
    else:
        canvases, grid, count = [(w, h)], (1, 1), 1
    return canvases, grid, count * (tile // patch // shuffle) ** 2


def gemma4(width, height, rows):
    h, w = get_aspect_ratio_preserving_size(height, width, 16, rows * 9, 3)
    return [(w, h)], (1, 1), (h // 48) * (w // 48)


def pixtral(width, height, longest, unit):
    shape = np.broadcast_to(np.uint8(0), (3, height, width))
    h, w = get_resize_output_image_size(shape, longest, unit, ChannelDimension.FIRST)
    return [(w, h)], (1, 1), (h // unit) * (w // unit + 1)


PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


# Granite Vision: all grids of up to ten tiles with at most ten along an edge, but no larger square than two by two.
GRANITE = [[384 * down, 384 * across] for down in range(1, 11) for across in range(1, 11)
           if across * down <= 10 and (down == 1 or across <= {1: 10, 2: 5, 3: 2, 4: 2, 5: 2}.get(down, 1))]


def llava(width, height, pinpoints=PINPOINTS, edge=336):
    best = select_best_resolution((height, width), pinpoints)
    shape = np.broadcast_to(np.uint8(0), (3, height, width))
    get_patch_output_size(shape, best, ChannelDimension.FIRST)
    processor = SimpleNamespace(
        image_processor=SimpleNamespace(image_grid_pinpoints=pinpoints), patch_size=14, num_additional_image_tokens=0
    )
    processor._get_unpadded_features = lambda *a: LlavaNextProcessor._get_unpadded_features(processor, *a)
    rows = LlavaNextProcessor._get_number_of_features(processor, height, width, edge, edge)
    grid = (best[0] // edge, best[1] // edge)
    # What is less than a patch at the end of a tile makes no row.
    kept = edge // 14 * 14
    return [(edge, edge), (grid[1] * kept, grid[0] * kept)], grid, rows


def internvl(width, height):
    columns, rows = get_optimal_tiled_canvas((height, width), (448, 448), 1, 12)
    canvases, count = [(columns * 448, rows * 448)], columns * rows
    if count > 1:
        canvases, count = canvases + [(448, 448)], count + 1
    return canvases, (rows, columns), count * 256


def minicpm(width, height, mode):
    p = MiniCPMV4_6ImageProcessorPil()
    merge = 4 if mode == "16x" else 2
    grid = p.get_sliced_grid((height, width), 9, 448)
    h, w = p.find_best_resize((height, width), 448, 14, downsample_mode=mode, allow_upscale=grid is None)
    canvases, count = [(w, h)], (h // 14 // merge) * (w // 14 // merge)
    if grid is not None:
        h, w = p.get_refine_size((height, width), grid, 448, 14, downsample_mode=mode, allow_upscale=True)
        canvases.append((w, h))
        count += (h // 14 // merge) * (w // 14 // merge)
    return canvases, tuple(grid or (1, 1)), count


def lfm2(width, height):
    """With the methods of the processor, whose module needs torchvision, and which are taken out of its text."""
    p = LFM2
    large = p["_is_image_too_large"](None, height, width, 256, 16, 2, 2.0)
    w, h = p["smart_resize"](None, height, width, 2, 64, 256, 16)
    rows = (h // 32) * (w // 32)
    if not large:
        return [(w, h)], (1, 1), rows
    ratios = sorted({(a, b) for n in range(2, 11) for a in range(1, n + 1) for b in range(1, n + 1) if 2 <= a * b <= 10},
                    key=lambda x: x[0] * x[1])
    columns, lines = p["find_closest_aspect_ratio"](width / height, ratios, width, height, 512)
    return [(columns * 512, lines * 512), (w, h)], (lines, columns), columns * lines * 256 + rows


def functions(path, names):
    """Functions and methods of a file, by name."""
    import ast

    tree = ast.parse(path.read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in found:
        node.decorator_list = []
    scope = {"math": math}
    exec(compile(ast.Module(found, []), str(path), "exec"), scope)
    return scope


LFM2 = functions(Path(transformers.__file__).parent / "models/lfm2_vl/image_processing_lfm2_vl.py",
                 {"round_by_factor", "find_closest_aspect_ratio", "smart_resize", "_is_image_too_large"})

RULES = {
    "qwen2.5": lambda w, h: qwen(w, h, 14, 3136, 12845056),
    "qwen3": lambda w, h: qwen(w, h, 16, 65536, 16777216),
    "qwen-small": lambda w, h: qwen(w, h, 14, 3136, 1280 * 28 * 28),
    "smolvlm": lambda w, h: idefics(w, h, 2048, 512, 16, 4),
    "smolvlm-2b": lambda w, h: idefics(w, h, 1536, 384, 14, 3),
    "gemma4-280": lambda w, h: gemma4(w, h, 280),
    "gemma4-70": lambda w, h: gemma4(w, h, 70),
    "pixtral": lambda w, h: pixtral(w, h, 1024, 16),
    "mistral3": lambda w, h: pixtral(w, h, 1540, 28),
    "llava-next": llava,
    "internvl": internvl,
    "minicpm-16x": lambda w, h: minicpm(w, h, "16x"),
    "minicpm-4x": lambda w, h: minicpm(w, h, "4x"),
    "lfm2": lfm2,
    "granite-vision": lambda w, h: llava(w, h, GRANITE, 384),
}

FIXED = [
    (1, 1), (70, 28), (28, 70), (42, 42), (14, 14), (98, 98), (126, 70), (48, 80), (80, 48), (16, 16), (224, 224),
    (336, 336), (448, 448), (512, 512), (640, 480), (480, 640), (1024, 1024), (1920, 1080), (1080, 1920), (4032, 3024),
    (3024, 4032), (8000, 6000), (2000, 10), (10, 2000), (2, 400), (400, 2), (5000, 25), (1000, 5), (897, 449), (449, 896),
]


def sizes(seed):
    rng = random.Random(seed)
    drawn = list(FIXED)
    while len(drawn) < 200:
        # Even in the logarithm, so that small and large ones are tried.
        w, h = (max(1, round(math.exp(rng.uniform(0, math.log(9000))))) for _ in range(2))
        if max(w, h) <= 200 * min(w, h) and w * h <= 50_000_000:
            drawn.append((w, h))
    return drawn


if __name__ == "__main__":
    lines = []
    for index, (name, rule) in enumerate(RULES.items()):
        for w, h in sizes(index):
            canvases, grid, rows = rule(w, h)
            made = ",".join(f"{a}x{b}" for a, b in canvases)
            lines.append(f"{name}\t{w}\t{h}\t{made}\t{grid[0]}x{grid[1]}\t{rows}")
    (Path(__file__).parent / "plans.tsv").write_text("\n".join(lines) + "\n")
