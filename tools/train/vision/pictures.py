"""Writes the pictures of the end-to-end tests, questions with answers, and numbers to compare:

    python -m vision.pictures TEXT.gguf TOWER.gguf OUT_FOLDER

Fails where the model does not answer as it should; with `--right-only` such cases are left out. In `cases.jsonl` a line is a message: pictures, then the question.
"""

import io
import json
import pathlib
import random
import sys

import numpy as np
from PIL import Image

from vision import drawing, reference
from vision.scenes import COLORS, Scene, Thing

WRITTEN = {name: numbers[3] for name, numbers in COLORS.items()}


def thing(name, color, x=0.5, y=0.5, radius=0.3):
    return Thing(name, color, x, y, radius, WRITTEN[color])


def picture(size, background, *things):
    """A clean picture in the colors that programs write."""
    return drawing.draw(random.Random(5), Scene(background, WRITTEN[background], list(things)), size, True)


def pictures():
    """{file name: bytes}."""
    square = picture((64, 64), "white", thing("square", "red"))
    pair = picture((120, 80), "white", thing("circle", "blue", 0.25, radius=0.24), thing("star", "yellow", 0.75, radius=0.26))
    stack = picture((100, 120), "black", thing("diamond", "green", 0.5, 0.25, 0.22), thing("cross", "white", 0.5, 0.76, 0.22))
    circles = picture((160, 120), "white", *(thing("circle", "purple", x, y, 0.15) for x, y in ((0.2, 0.3), (0.52, 0.7), (0.8, 0.3))))
    seven = picture((200, 200), "black", thing("7", "green"))
    three = picture((90, 90), "yellow", thing("3", "blue"))
    found = {
        "red-square.png": square, "circle-and-star.png": pair, "diamond-above-cross.png": stack, "three-circles.png": circles,
        "digit-7.png": seven, "digit-3.png": three, "plain-green.png": Image.new("RGB", (8, 8), WRITTEN["green"]),
        "large-ring.png": picture((1200, 900), "white", thing("ring", "orange")), "seven.jpg": seven, "seven.webp": seven, "three.gif": three.quantize(16),
        "square.bmp": square.quantize(16),
    }  # fmt: skip
    made = {name: encoded(one, pathlib.Path(name).suffix) for name, one in found.items()}
    turned = Image.Exif()
    turned[0x0112] = 6
    # Lies on its side; the orientation says so.
    made["turned.jpg"] = encoded(pair.rotate(90, expand=True), ".jpg", exif=turned)
    made["clear.png"] = encoded(without_ground(picture((72, 72), "white", thing("cross", "red"))), ".png")
    gray = picture((64, 64), "white", thing("star", "black"))
    made["gray.png"] = encoded(gray.convert("L"), ".png")
    return made


def without_ground(image):
    """White made clear, with black under it."""
    pixels = np.asarray(image)
    solid = (pixels != 255).any(-1)
    return Image.fromarray(np.dstack([np.where(solid[..., None], pixels, 0), np.where(solid, 255, 0)]).astype(np.uint8), "RGBA")


def encoded(image, suffix, **more):
    out = io.BytesIO()
    how = {".png": {"optimize": True}, ".jpg": {"quality": 88}, ".webp": {"quality": 85}}.get(suffix, {})
    image.save(out, {".jpg": "JPEG"}.get(suffix, suffix[1:].upper()), **how, **more)
    return out.getvalue()


CASES = (
    (["red-square.png"], "Which colour is the square?", "The square is red."),
    (["red-square.png"], "What is in this image?", "A red square."),
    (["red-square.png"], "What shape is this? Answer in one word.", "square"),
    (["square.bmp"], "What color is the square?", "The square is red."),
    (["circle-and-star.png"], "What is in this image?", "A blue circle on the left and a yellow star on the right."),
    (["circle-and-star.png"], "What is on the left?", "A blue circle is on the left."),
    (["circle-and-star.png"], "Where is the star?", "The star is on the right."),
    (["diamond-above-cross.png"], "Describe this picture.", "A green diamond above a white cross."),
    (["diamond-above-cross.png"], "What color is the background?", "The background is black."),
    (["three-circles.png"], "How many circles are there?", "There are three circles."),
    (["digit-7.png"], "Which digit is this?", "It is a 7."),
    (["seven.jpg"], "Which digit is this?", "It is a 7."),
    (["seven.webp"], "What is in this image?", "A green 7."),
    (["digit-3.png"], "What number is in the picture?", "It is a 3."),
    (["three.gif"], "What color is the digit?", "The 3 is blue."),
    (["plain-green.png"], "What color is this picture?", "The picture is green."),
    (["large-ring.png"], "What do you see?", "An orange ring."),
    (["turned.jpg"], "What is in this image?", "A blue circle on the left and a yellow star on the right."),
    (["turned.jpg"], "What is on the left?", "A blue circle is on the left."),
    (["clear.png"], "What is in this picture?", "A red cross."),
    (["clear.png"], "What color is the background?", "The background is white."),
    (["gray.png"], "What shape is this?", "It is a star."),
    (["red-square.png", "digit-7.png"], "What is in the second picture?", "A green 7."),
    (["red-square.png", "digit-7.png"], "What is in the first picture?", "A red square."),
    (["digit-7.png", "red-square.png"], "What is in the first picture?", "A green 7."),
    (["red-square.png", "digit-7.png"], "Which picture shows a square?", "The first picture."),
    (["digit-7.png", "red-square.png"], "Which picture shows a square?", "The second picture."),
    (["digit-7.png", "red-square.png"], "What do you see in these pictures?", "First, a green 7. Second, a red square."),
    (["red-square.png", "digit-7.png"], "What do you see in these pictures?", "First, a red square. Second, a green 7."),
    (["circle-and-star.png"], "How many things are there?", "There are two things."),
    (["red-square.png"], "How many squares are there?", "There is one square."),
    (["red-square.png"], "Is there a circle?", "No, there is no circle."),
    (["three-circles.png"], "How many shapes are there?", "There are three shapes."),
    (["digit-7.png", "red-square.png"], "What is in the second picture?", "A red square."),
    ([], "Hello", "Hello! Show me a picture and ask about it."),
    ([], "Which colour is the square?", "I see no picture."),
)


def opened(data):
    """As the server opens it: upright, alpha over white."""
    from PIL import ImageOps

    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def main():
    text, tower, out = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    model, made = reference.Model(text, tower), pictures()
    (out / "golden").mkdir(parents=True, exist_ok=True)
    right = []
    for names, question, answer in CASES:
        said, _, _ = model.answer(reference.asked(question, names), [opened(made[name]) for name in names])
        if said == answer:
            right.append((names, question, answer))
        else:
            print(f"{names} {question!r}: wanted {answer!r}, got {said!r}")
    for name, data in made.items():
        (out / name).write_bytes(data)
    lines = (json.dumps({"pictures": names, "question": question, "answer": answer}) for names, question, answer in right)
    (out / "cases.jsonl").write_text("".join(line + "\n" for line in lines))
    image = opened(made["circle-and-star.png"])
    _, ids, logits = model.answer(reference.asked("What is in this image?", [image]), [image])
    (out / "golden" / "ids.json").write_text(json.dumps({"picture": "circle-and-star.png", "ids": ids}) + "\n")
    (out / "golden" / "tile.rgb").write_bytes(drawing.tile(image).tobytes())
    (out / "golden" / "rows.f32").write_bytes(model.tower.rows(drawing.tile(image)).astype("<f4").tobytes())
    (out / "golden" / "logits.f32").write_bytes(logits.astype("<f4").tobytes())
    print(f"{len(right)} of {len(CASES)} right, {sum(map(len, made.values()))} bytes of pictures")
    sys.exit("--right-only" not in sys.argv and len(right) < len(CASES))


if __name__ == "__main__":
    main()
