#!/usr/bin/env python3
"""Ours and llama.cpp on towers in true shapes: seconds for one picture, in turn, and the rows of both compared.

    python vision.py --examples target/release/examples --models FOLDER [--shapes gemma3,qwen3vl] [--formats F16,Q8_0] [--layers 27]

Both sides read one synthetic file; random weights do not change the speed. Pictures need no resizing, so that only the tower is
measured. Seconds of the processor are printed, too: other load on the machine hardly changes them, and with `--threads 1` no
thread waits for another. llama.cpp's side is `mtmd_encode_chunk`, as its server calls it. Rows are compared by their cosine: of the worst row
and of the mean. `cargo xtask rivals --vision` builds what this needs and calls it.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

import numpy

from mtmd_encoder import Encoder

# Shape: width and height of the picture, and all layers.
SHAPES = {
    "siglip-b": (512, 512, 12),
    "gemma3": (896, 896, 27),
    "qwen3vl": (1024, 1024, 27),
    "pixtral": (1024, 1024, 24),
}


def ours(args, mmproj, width, height):
    """One round of our side: seconds, those of the processor, the longest unit in milliseconds, and the rows."""
    environment = os.environ | {"MILLRACE_THREADS": str(args.threads)}
    rows = args.models / "rows.f32"
    words = [args.examples / "tower_speed", mmproj, str(width), str(height), "1", rows]
    found = json.loads(subprocess.check_output(words, env=environment, text=True))
    return found["seconds"], found["processor_seconds"], found["longest_ms"], numpy.fromfile(rows, numpy.float32)


def cosines(a, b):
    a, b = a.astype(numpy.float64), b.astype(numpy.float64)
    return (a * b).sum(1) / numpy.sqrt((a * a).sum(1) * (b * b).sum(1))


def compare(args, shape, form):
    width, height, layers = SHAPES[shape]
    layers = args.layers or layers
    mmproj = args.models / f"{shape}-{layers}-{form}.mmproj.gguf"
    text = args.models / f"{shape}.text.gguf"
    if not mmproj.exists():
        subprocess.run([args.examples / "tower_speed", "write", shape, form, str(layers), mmproj, text], check=True)
    own, theirs, longest = [], [], []
    rival = Encoder(mmproj, text, args.threads)
    # The same levels as on our side.
    levels = (numpy.arange(width * height * 3) * 31 % 251).astype(numpy.uint8).reshape(height, width, 3)
    chunk = rival.chunks(levels)[0]
    rival.encode(chunk)  # warms up, as our side does
    for _ in range(args.rounds):
        seconds, used, unit, rows = ours(args, mmproj, width, height)
        own.append((seconds, used))
        longest.append(unit)
        seconds, used, wanted = rival.encode(chunk)
        theirs.append((seconds, used))
    rival.close()
    same = cosines(rows.reshape(wanted.shape), wanted)
    parts = []
    for of in range(2):
        one, other = (statistics.median(times[of] for times in side) for side in (own, theirs))
        parts.append(f"{one:.2f} / {other:.2f} = {other / one:.2f}")
    print(f"| {shape}, {form}, {layers} layers, {width} x {height} | {parts[0]} | {parts[1]} | {statistics.median(longest):.0f} |"
          f" {same.min():.6f} | {same.mean():.6f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=pathlib.Path, required=True, help="the folder with `tower_speed`")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder for synthetic towers")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--formats", default="F16,Q8_0")
    parser.add_argument("--layers", type=int, help="fewer than the shape has")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    print(f"{args.threads} threads, medians of {args.rounds} rounds in turn\n\n"
          "| tower | seconds, ours / llama.cpp, and the speed | those of the processor | longest unit, ms | least cosine | mean |\n|---|---|---|---|---|---|")
    for shape in args.shapes.split(","):
        for form in args.formats.split(","):
            compare(args, shape, form)


if __name__ == "__main__":
    main()
