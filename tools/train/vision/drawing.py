"""Pictures of scenes, and the tile that the tower sees of a picture."""

import io
import math

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from vision import font

TILE = 64


def polygon(x, y, radius, corners, turn):
    """Corners of a regular polygon; the first is at `turn` degrees, clockwise from the top."""
    angles = [math.radians(turn + 360 * i / corners) for i in range(corners)]
    return [(x + radius * math.sin(a), y - radius * math.cos(a)) for a in angles]


def star(x, y, radius, turn):
    outer, inner = polygon(x, y, radius, 5, turn), polygon(x, y, radius * 0.42, 5, turn + 36)
    return [point for pair in zip(outer, inner) for point in pair]


def bars(x, y, radius, turn, width):
    """The two bars of a cross."""
    found = []
    for angle in (turn, turn + 90):
        a = math.radians(angle)
        along, across = (math.sin(a) * radius, -math.cos(a) * radius), (math.cos(a) * width, math.sin(a) * width)
        signs = ((1, 1), (1, -1), (-1, -1), (-1, 1))
        found.append([(x + i * along[0] + j * across[0], y + i * along[1] + j * across[1]) for i, j in signs])
    return found


def draw_shape(draw, rng, name, x, y, radius, fill):
    if name == "square":
        draw.polygon(polygon(x, y, radius * 1.2, 4, 45 + rng.uniform(-7, 7) * (rng.random() < 0.5)), fill=fill)
    elif name == "diamond":
        draw.polygon(polygon(x, y, radius * 1.1, 4, rng.uniform(-6, 6) * (rng.random() < 0.5)), fill=fill)
    elif name == "triangle":
        turn = rng.choice((0, 0, 0, 180)) + rng.uniform(-9, 9) * (rng.random() < 0.5)
        draw.polygon(polygon(x, y, radius * 1.15, 3, turn), fill=fill)
    elif name == "star":
        draw.polygon(star(x, y, radius * 1.15, rng.uniform(-15, 15) * (rng.random() < 0.5)), fill=fill)
    elif name == "cross":
        turn = (45 if rng.random() < 0.3 else 0) + rng.uniform(-8, 8) * (rng.random() < 0.5)
        for bar in bars(x, y, radius * 1.1, turn, radius * rng.uniform(0.22, 0.36)):
            draw.polygon(bar, fill=fill)
    elif name == "ring":
        width = max(2, round(radius * rng.uniform(0.22, 0.4)))
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], outline=fill, width=width)
    else:
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=fill)


def digit_mask(rng, digit, radius):
    height = round(radius * 2.2)
    kind = rng.random()
    if kind < 0.5:
        mask = font.dots(digit, height, rng.random() < 0.5, rng.random() < 0.5)
    elif kind < 0.62:
        mask = font.segments(digit, height, rng.uniform(0.1, 0.17))
    else:
        face = ImageFont.load_default(height * 1.3)
        box = face.getbbox(digit)
        mask = Image.new("L", (int(box[2] - box[0]) + 4, int(box[3] - box[1]) + 4))
        weight = rng.choice((0, 0, height / 40, height / 22))
        ImageDraw.Draw(mask).text((2 - box[0], 2 - box[1]), digit, fill=255, font=face, stroke_width=weight)
    if rng.random() < 0.4:
        mask = mask.rotate(rng.uniform(-9, 9), expand=True, resample=Image.Resampling.BILINEAR)
    return mask


def edges(rng):
    """(width, height) of a picture."""
    if rng.random() < 0.3:
        return rng.choice(((64, 64), (64, 64), (96, 96), (128, 128), (256, 256)))
    longer, ratio = rng.randint(48, 170), math.exp(min(0.5, abs(rng.gauss(0, 0.2))))
    shorter = max(40, round(longer / ratio))
    return (longer, shorter) if rng.random() < 0.5 else (shorter, longer)


def draw(rng, scene, size=None, clean=False):
    """The picture, any size. Edges are hard or smooth; some pictures have noise, blur or went through JPEG."""
    width, height = size or edges(rng)
    times = rng.choice((1, 2, 3)) if max(width, height) < 180 else 1
    picture = Image.new("RGB", (width * times, height * times), scene.ground)
    brush = ImageDraw.Draw(picture)
    shorter = min(width, height) * times
    for thing in scene.things:
        x, y, radius = thing.x * width * times, thing.y * height * times, thing.radius * shorter
        if thing.is_digit:
            mask = digit_mask(rng, thing.name, radius)
            picture.paste(thing.rgb, (round(x - mask.width / 2), round(y - mask.height / 2)), mask)
        else:
            draw_shape(brush, rng, thing.name, x, y, radius, thing.rgb)
    if times > 1:
        picture = picture.reduce(times)
    return picture if clean else worn(rng, picture)


def worn(rng, picture):
    """A picture as it comes from elsewhere."""
    kind = rng.random()
    if kind < 0.12:
        noise = np.random.default_rng(rng.getrandbits(32)).normal(0, rng.uniform(2, 12), (picture.height, picture.width, 3))
        return Image.fromarray(np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8))
    if kind < 0.18:
        return picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9)))
    if kind < 0.28:
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=rng.randint(60, 95))
        return Image.open(out).convert("RGB")
    return picture


def tile(picture):
    """(64, 64, 3) bytes, by the rule of Idefics 3 with its longest edge and its tile both 64: two resizes with Lanczos."""
    width, height = picture.size
    aspect = width / height
    if width >= height:
        size = (TILE, max(1, even(int(TILE / aspect))))
    else:
        size = (max(1, even(int(TILE * aspect))), TILE)
    for edges in (size, (TILE, TILE)):
        if picture.size != edges:
            picture = picture.resize(edges, Image.Resampling.LANCZOS)
    return np.asarray(picture)


def even(edge):
    return edge + edge % 2
