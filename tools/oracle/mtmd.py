#!/usr/bin/env python3
"""A second reference for towers: the rows of llama.cpp's `mtmd` next to the goldens of `vision.py`, which are transformers' rows.

    python mtmd.py [--only qwen2.5vl]

`cargo xtask oracle --mtmd` calls it. llama.cpp reads the files of crates/cpu/tests/goldens/towers, with a vocabulary added to the
text, and gets the same picture. Asked for are a cosine of at least 0.9999 for each row, the length of rows, and the positions of
the text: those of `engine/src/media/layout.rs`. What llama.cpp computes in another way than transformers is in DIFFERENCES, with
the change of the file or the part of the rows by which both agree. Any other difference is a failure, and so is one of these that
is gone. Then llama.cpp's text gets transformers' rows, and its logits before and after the image are compared, so that positions
and masks are llama.cpp's own (TEXT_DIFFERENCES).
"""

import argparse
import pathlib
import sys
import tempfile

import gguf
import numpy as np

from pictures import picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "crates" / "cpu" / "tests" / "goldens" / "towers"
sys.path.append(str(ROOT / "tools" / "rivals"))
from mtmd_encoder import Encoder  # noqa: E402

# As with F16 in crates/cpu/tests/it/tower_goldens.rs.
LEAST, LENGTHS = 0.9999, (0.98, 1.02)
# From here on there is no difference.
SAME = 0.999995
# The position of the first row, after three tokens.
FIRST = 3
PLACES = "v.position_embd.weight"
KINDS = gguf.GGUFValueType


class File:
    """A GGUF in memory, to be changed."""

    def __init__(self, name):
        reader = gguf.GGUFReader(GOLDENS / name)
        fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        self.keys = {key: (field.contents(), *field.types) for key, field in fields.items()}
        self.tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
        # Converters keep this table in f32, and llama.cpp adds no other.
        if PLACES in self.tensors:
            self.tensors[PLACES] = self.tensors[PLACES].astype(np.float32)

    def write(self, path):
        out = gguf.GGUFWriter(path, self.keys["general.architecture"][0])
        for key, (value, kind, *inner) in self.keys.items():
            if key != "general.architecture":
                out.add_key_value(key, value, kind, *inner)
        for name, tensor in self.tensors.items():
            out.add_tensor(name, tensor)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()
        return path


def text_with_words(name):
    """The text with a vocabulary in which no mark is found: mtmd looks for them in any case."""
    file = File(f"{name}.text.gguf")
    words = [f"w{at}" for at in range(len(file.tensors["token_embd.weight"]))]
    file.keys |= {"tokenizer.ggml.model": ("gpt2", KINDS.STRING), "tokenizer.ggml.pre": ("default", KINDS.STRING),
                  "tokenizer.ggml.tokens": (words, KINDS.ARRAY, KINDS.STRING),
                  "tokenizer.ggml.token_type": ([1] * len(words), KINDS.ARRAY, KINDS.INT32),
                  "tokenizer.ggml.merges": (["w 0"], KINDS.ARRAY, KINDS.STRING)}
    return file


def patches_of_28(file, levels):
    """Windows of 112 pixels of patches of 28, of which 8 by 8 count: 4 by 4 patches, as in the golden's windows of 32 pixels."""
    for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
        file.tensors[name] = np.pad(file.tensors[name], ((0, 0), (0, 0), (0, 20), (0, 20)))
    file.keys["clip.vision.patch_size"] = (28, KINDS.UINT32)
    height, width = levels.shape[0] // 8, levels.shape[1] // 8
    wide = np.pad(levels.reshape(height, 8, width, 8, 3), ((0, 0), (0, 20), (0, 0), (0, 20), (0, 0)))
    return wide.reshape(28 * height, 28 * width, 3)


def table_of_70(file, levels):
    """A table of 70 by 70 places in which those of the golden, 10 by 10, are as large as 7 by 7."""
    table = file.tensors[PLACES].reshape(10, 10, -1)
    file.tensors[PLACES] = table.repeat(7, 0).repeat(7, 1).reshape(4900, -1)
    return levels


# What llama.cpp has as a number of its own: it gets the same tower in that size.
FIXED = {"qwen2.5vl": patches_of_28, "minicpmv2.5": table_of_70, "minicpmv2.6": table_of_70, "minicpmv4.6": table_of_70,
         "minicpm-ocr": table_of_70}


def class_last(file):
    """The entry of the class token at the end of the table."""
    file.tensors[PLACES] = np.roll(file.tensors[PLACES], -1, 0)


def class_last_and_all_layers(file):
    class_last(file)
    file.keys["clip.vision.feature_layer"] = ([file.keys["clip.vision.block_count"][0]], KINDS.ARRAY, KINDS.INT32)


def named_gelu(file):
    file.keys["clip.use_gelu"] = (True, KINDS.BOOL)


def as_it_is(_file):
    pass


ALL = slice(None)
CLASS = "the class token is last in the stream, and has the last entry of the table, not the first"
GELU = "without a named non-linearity it is quick-gelu; transformers has gelu by tanh"
BARS = "slices keep the ratio of the picture between black bars"
TILE = "a picture of one tile is there twice; published files have several tiles"
# What llama.cpp computes differently: why, what to change in the file, and which of its rows then are which of the golden's.
# CLIP's class token is llama.cpp#25814.
DIFFERENCES = {
    "idefics3": (TILE, as_it_is, slice(-16, None), ALL),
    "idefics3-27": (TILE, as_it_is, slice(-81, None), ALL),
    "llava": (f"the last layer of the file is left out; {CLASS}, and is a row in place of the first patch",
              class_last_and_all_layers, slice(0, -1), slice(1, None)),
    "llava-next": (f"the whole picture is last, tiles have no ends of lines and keep their padding; {CLASS}, and is a row",
                   class_last, slice(-16, -1), slice(1, 16)),
    "gemma4v": (GELU, named_gelu, ALL, ALL),
    "gemma4v-e": (GELU, named_gelu, ALL, ALL),
    "llava-siglip": (GELU, named_gelu, ALL, ALL),
    "granite-vision": (f"the whole picture is last, tiles have no ends of lines and keep their padding; {GELU}", named_gelu,
                       slice(-16, None), slice(0, 16)),
    "internvl": (CLASS, class_last, ALL, ALL),
    "minicpmv2.5": ("a picture as large as one slice is cut if one edge is longer", as_it_is, slice(0, 96), ALL),
    "minicpmv4.6": (BARS, as_it_is, slice(0, 3), slice(0, 3)),
    "minicpm-ocr": (BARS, as_it_is, slice(0, 15), slice(0, 15)),
}


# Rows of a line with its end. llama.cpp begins the ends with memory times zero, which may be no number: they are left out.
LINES = {"pixtral": 7, "mistral3": 6}


# The same for logits of the text.
TEXT_DIFFERENCES = {
    "llava-next": "the image has other rows",
    "granite-vision": "the image has other rows",
    "gemma4v-e": "rows see each other, but for texts of a width of 1536 or 2560",
}


def compare(case, folder):
    """What both have in common, as words; raises where they differ."""
    name = case.name
    file, levels = File(f"{name}.mmproj.gguf"), picture(*case.size, case.seed)
    text = text_with_words(name).write(folder / "text.gguf")
    if name in FIXED:
        levels = FIXED[name](file, levels)
    found, logits = rows_of(case, file, text, levels, folder)
    words = logits_compared(case, logits)
    wanted = case.rows
    if name in LINES:
        inner = np.arange(len(wanted)) % LINES[name] != LINES[name] - 1
        found, wanted = found[inner], wanted[inner]
    if name not in DIFFERENCES:
        return f"rows {alike(found, wanted):.7f}, {words}"
    why, change, theirs, ours = DIFFERENCES[name]
    gone(why, found, wanted)
    change(file)
    found, _ = rows_of(case, file, text, levels, folder)
    part = f"{len(wanted[ours])} of {len(wanted)} rows"
    return f"rows {alike(found[theirs], wanted[ours]):.7f} ({part}; llama.cpp's otherwise: {why}), {words}"


def logits_compared(case, found):
    why = TEXT_DIFFERENCES.get(case.name)
    if why is None:
        return f"logits {alike(found, case.logits):.7f}"
    gone(why, found, case.logits)
    return f"other logits: {why}"


def gone(why, found, wanted):
    """Raises if what is known as a difference is none."""
    try:
        alike(found, wanted, SAME)
    except Differs:
        return
    raise Differs(f"no longer: {why}")


class Case:
    """A line of `cases.tsv`, and its numbers: rows, and logits of the prompt without those of rows."""

    def __init__(self, line):
        self.name, *numbers, prompt, vocab, _ = line.split("\t")
        *self.size, self.seed, count, width = map(int, numbers)
        self.vocab, prompt = int(vocab), [int(token) for token in prompt.split()]
        first = prompt.index(-1)
        self.before, self.after = prompt[:first], prompt[first + count:]
        floats = np.fromfile(GOLDENS / f"{self.name}.f32", "<f4")
        self.rows, logits = floats[:count * width].reshape(count, width), floats[count * width:].reshape(-1, self.vocab)
        self.logits = np.concatenate([logits[:first], logits[first + count:]])


class Differs(Exception):
    pass


def rows_of(case, file, text, levels, folder):
    """The rows of all chunks, whose positions are checked, and the logits of the text with the case's rows."""
    # Where pictures have a least number of rows, those of goldens have fewer.
    rows_min = -1 if file.keys.get("clip.projector_type") == ("idefics3", KINDS.STRING) else 1
    encoder = Encoder(file.write(folder / "mmproj.gguf"), text, 2, exact=True, rows_min=rows_min)
    grid = [edge // file.keys["clip.vision.patch_size"][0] // 2 for edge in levels.shape[:2]]
    rows, parts, done = [], [], 0
    for chunk in encoder.chunks(levels):
        rows.append(encoder.encode(chunk)[2])
        count = len(rows[-1])
        check_positions(encoder.positions(chunk, FIRST), count, grid)
        if done + count <= len(case.rows):
            parts.append((chunk, case.rows[done:done + count]))
            done += count
    logits = encoder.logits(case.before, parts, case.after, case.vocab)
    encoder.close()
    return np.concatenate(rows), logits


def check_positions(found, count, grid):
    places, after, has_axes = found
    wanted = [(FIRST + at,) * 3 for at in range(count)], FIRST + count
    if has_axes:
        wanted = [(FIRST, FIRST + at // grid[1], FIRST + at % grid[1]) for at in range(count)], FIRST + max(grid)
    if (places, after) != wanted:
        raise Differs(f"positions {places}, then {after}")


def alike(found, wanted, bound=LEAST):
    """The least cosine of a row."""
    if found.shape != wanted.shape:
        raise Differs(f"{len(found)} rows, not {len(wanted)}")
    found, wanted = found.astype(float), wanted.astype(float)
    lengths = [np.linalg.norm(rows, axis=1) for rows in (found, wanted)]
    least = ((found * wanted).sum(1) / lengths[0] / lengths[1]).min()
    ratio = (lengths[0] / lengths[1]).mean()
    if not (least >= bound and LENGTHS[0] < ratio < LENGTHS[1]):
        raise Differs(f"cosine {least:.6f}, lengths {ratio:.3f}")
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in map(Case, (GOLDENS / "cases.tsv").read_text().splitlines()):
            if args.only not in case.name:
                continue
            try:
                print(case.name, compare(case, pathlib.Path(folder)), flush=True)
            except Differs as why:
                failures += 1
                print(case.name, "FAILED:", why, flush=True)
    print(f"{failures} cases differ" if failures else "all cases agree")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
