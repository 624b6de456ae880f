"""Decoding and resizing in turn with Pillow: `python with_pillow.py PROGRAM`, with Pillow and numpy.

PROGRAM is the built bench (`cargo bench -p media --bench decode --no-run` prints its path). Makes a JPEG of 12 megapixels
(4000 x 3000, quality 90, 4:2:0) in a temporary folder. Each round runs one side and then the other; medians are printed.
"""

import io
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROUNDS = 7
FILTERS = {
    "Bilinear": Image.Resampling.BILINEAR,
    "Bicubic": Image.Resampling.BICUBIC,
    "Lanczos": Image.Resampling.LANCZOS,
}


def picture():
    """Waves, an edge and the noise of a camera."""
    y, x = np.mgrid[0:3000, 0:4000]
    red = 128 + 90 * np.sin(x / 37.0) * np.cos(y / 91.0)
    green = 128 + 90 * np.cos((x + y) / 53.0)
    blue = np.where((x // 250 + y // 250) % 2, 180, 60)
    values = np.stack([red, green, blue], axis=-1)
    return np.clip(values + np.random.default_rng(1).normal(0, 6, values.shape), 0, 255).astype(np.uint8)


def best_ms(run):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def pillow(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    found = {"decode": best_ms(lambda: Image.open(io.BytesIO(data)).convert("RGB").load())}
    for name, value in FILTERS.items():
        found[name] = best_ms(lambda value=value: image.resize((1024, 768), value))
    return found


def program(path, file):
    line = subprocess.run([path, file], check=True, capture_output=True, text=True).stdout
    return {name: float(ms) for name, ms in re.findall(r"(\w+) ([\d.]+) ms", line)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for progressive in (False, True):
            file = Path(folder) / "large.jpg"
            Image.fromarray(picture()).save(file, quality=90, progressive=progressive)
            data = file.read_bytes()
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(program(sys.argv[1], file))
                theirs.append(pillow(data))
            print(f"progressive {progressive}, {len(data)} bytes")
            for name in theirs[0]:
                a, b = (statistics.median(side[name] for side in found) for found in (ours, theirs))
                print(f"  {name}: {a:.1f} ms, Pillow {b:.1f} ms, ratio {a / b:.2f}")
