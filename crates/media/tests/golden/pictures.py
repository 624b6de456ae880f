"""Writes what Pillow makes of small files and of resizes: `python pictures.py`, with Pillow 13.0.0 and numpy.

- `images/NAME.EXT` and `images/NAME.rgb`: a file, and the bytes that `Image.open(…)` gives after `exif_transpose`,
  alpha over white and `convert("RGB")`.
- `resize.tsv`: input size, output size, filter, pattern and the SHA-256 of the resized bytes. The pattern is computed
  by the test in the same way.
"""

import hashlib
import io
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).parent
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def pattern(name, width, height):
    """(height, width, 3) bytes; `pattern.rs` has the same."""
    y, x = np.mgrid[0:height, 0:width].astype(np.uint32)
    if name == "gradient":
        channels = [x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), x * y % 256]
    elif name == "checks":
        light = (x // 3 + y // 5) % 2 * 255
        channels = [light, 255 - light, (x + y) % 2 * 255]
    else:
        seed = (y * width + x) * 3
        channels = []
        for channel in range(3):
            v = (seed + channel).astype(np.uint32)
            v = (v ^ (v >> 16)) * np.uint32(0x45D9F3B)
            v = (v ^ (v >> 16)) * np.uint32(0x45D9F3B)
            channels.append((v ^ (v >> 16)) & 255)
    return np.stack(channels, axis=-1).astype(np.uint8)


def smooth(width, height):
    """A picture that compresses well and has color, light and an edge."""
    y, x = np.mgrid[0:height, 0:width]
    red = 128 + 100 * np.sin(x / 7.0)
    green = 128 + 100 * np.cos(y / 5.0)
    blue = np.where(x + y > (width + height) / 2, 220, 40)
    return np.stack([red, green, blue], axis=-1).astype(np.uint8)


def over_white(image):
    """RGB, with alpha (of the mode or of a transparent color) over white.

    Of 16-bit gray the upper byte, as of 16-bit RGB: `convert` would make all but the darkest 255 levels white.
    """
    if image.mode == "I;16":
        image = Image.fromarray((np.array(image) >> 8).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        ground = Image.new("RGB", image.size, (255, 255, 255))
        ground.paste(image, mask=image.getchannel("A"))
        return ground
    return image.convert("RGB")


def write(name, data):
    path = HERE / "images" / name
    path.write_bytes(data)
    image = Image.open(io.BytesIO(data))
    image.load()
    upright = ImageOps.exif_transpose(image)
    rgb = over_white(upright)
    path.with_suffix(".rgb").write_bytes(bytes([rgb.width, rgb.height]) + rgb.tobytes())
    print(name, image.mode, len(data))


def save(name, image, **options):
    file = io.BytesIO()
    kind = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP"}[name.split(".")[-1]]
    image.save(file, kind, **options)
    write(name, file.getvalue())


def exif(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


def jpegs():
    picture = Image.fromarray(smooth(45, 29))
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        save(f"jpeg-{name}.jpg", picture, quality=90, subsampling=subsampling)
        save(f"jpeg-{name}-progressive.jpg", picture, quality=90, subsampling=subsampling, progressive=True)
        save(f"jpeg-{name}-restarts.jpg", picture, quality=75, subsampling=subsampling, restart_marker_blocks=2)
    save("jpeg-gray.jpg", picture.convert("L"), quality=90)
    save("jpeg-gray-progressive.jpg", picture.convert("L"), quality=90, progressive=True)
    save("jpeg-cmyk.jpg", picture.convert("CMYK"), quality=95)
    save("jpeg-rgb.jpg", picture, quality=90, keep_rgb=True)
    save("jpeg-pixel.jpg", picture.crop((0, 0, 1, 1)), quality=90)
    save("jpeg-narrow.jpg", picture.crop((0, 0, 3, 29)), quality=90)
    for orientation in range(2, 9):
        save(f"jpeg-turned-{orientation}.jpg", picture, quality=90, exif=exif(orientation))
    # YCCK: the file of CMYK with Adobe's transform set to 2. Colors differ from the picture's, the arithmetic counts.
    file = io.BytesIO()
    picture.convert("CMYK").save(file, "JPEG", quality=95)
    data = bytearray(file.getvalue())
    data[data.index(b"Adobe") + 11] = 2
    write("jpeg-ycck.jpg", bytes(data))


def pngs():
    rgb = pattern("noise", 13, 9)
    picture = Image.fromarray(rgb)
    alpha = pattern("gradient", 13, 9)[..., 0]
    rgba = Image.fromarray(np.dstack([rgb, alpha]))
    save("png-rgb.png", picture)
    save("png-rgba.png", rgba)
    save("png-gray.png", picture.convert("L"))
    save("png-gray-alpha.png", rgba.convert("LA"))
    save("png-bits-1.png", picture.convert("1"))
    save("png-palette.png", picture.quantize(40))
    save("png-palette-2.png", picture.quantize(4), bits=2)
    save("png-palette-4.png", picture.quantize(13), bits=4)
    save("png-transparent-color.png", picture, transparency=picture.getpixel((3, 3)))
    save("png-transparent-gray.png", picture.convert("L"), transparency=picture.convert("L").getpixel((2, 2)))
    save("png-transparent-palette.png", picture.quantize(16), transparency=bytes(range(0, 256, 16)))
    save("png-turned.png", picture, exif=exif(6))
    save("png-gray-16.png", Image.fromarray((pattern("noise", 13, 9)[..., 0].astype(np.uint16) * 257 + 77) & 0xFFFF))
    save("png-pixel.png", picture.crop((0, 0, 1, 1)))
    import png_by_hand

    for name, data in png_by_hand.files():
        write(name, data)


def others():
    rgb = pattern("noise", 13, 9)
    picture = Image.fromarray(rgb)
    alpha = pattern("gradient", 13, 9)[..., 0]
    rgba = Image.fromarray(np.dstack([rgb, alpha]))
    save("gif-palette.gif", picture.quantize(64))
    save("gif-interlaced.gif", picture.quantize(64), interlace=1)
    save("gif-transparent.gif", picture.quantize(16), transparency=3)
    data = io.BytesIO()
    picture.quantize(64).save(data, "GIF")
    # The same frame on a larger canvas.
    larger = bytearray(data.getvalue())
    larger[6:10] = (20).to_bytes(2, "little") + (15).to_bytes(2, "little")
    at = larger.index(b"\x2c", 13 + 64 * 3)
    larger[at + 1 : at + 5] = (4).to_bytes(2, "little") + (3).to_bytes(2, "little")
    write("gif-canvas.gif", bytes(larger))
    save("bmp-24.bmp", picture)
    save("bmp-8.bmp", picture.convert("L"))
    save("bmp-palette.bmp", picture.quantize(30))
    save("bmp-1.bmp", picture.convert("1"))
    save("bmp-32.bmp", rgba)
    large = Image.fromarray(np.vstack([pattern("noise", 61, 20), pattern("checks", 61, 20), smooth(61, 20)]))
    save("webp-lossless.webp", large, lossless=True)
    save("webp-lossless-noise.webp", picture, lossless=True)
    save("webp-lossless-smooth.webp", Image.fromarray(smooth(90, 70)), lossless=True, quality=100, method=6)
    save("webp-lossless-palette.webp", picture.quantize(3).convert("RGB"), lossless=True)
    save("webp-lossless-palette-16.webp", large.quantize(11).convert("RGB"), lossless=True)
    save("webp-lossless-alpha.webp", rgba, lossless=True, exact=True)
    save("webp-lossless-turned.webp", picture, lossless=True, exif=exif(8))
    save("webp-lossy.webp", Image.fromarray(smooth(45, 29)), quality=90)
    big = Image.fromarray(smooth(45, 29)).convert("RGBA")
    big.putalpha(Image.fromarray(pattern("gradient", 45, 29)[..., 0]))
    save("webp-lossy-alpha.webp", big, quality=90)
    big.putalpha(Image.fromarray(pattern("noise", 45, 29)[..., 0]))
    save("webp-lossy-alpha-noise.webp", big, quality=90)


def resizes():
    sizes = [
        (1, 1, 5, 7), (1, 1, 1, 1), (2, 1, 1, 1), (1, 9, 4, 3), (9, 1, 3, 4), (3, 3, 3, 3), (5, 4, 10, 8),
        (10, 8, 5, 4), (7, 5, 7, 9), (7, 5, 9, 5), (64, 48, 32, 24), (64, 48, 33, 25), (100, 3, 10, 30),
        (3, 100, 30, 10), (500, 20, 7, 7), (20, 500, 7, 7), (16, 1000, 16, 4), (1000, 16, 4, 16),
        (300, 2000, 280, 28), (40, 1500, 400, 10),
    ]
    rng = random.Random(7)
    while len(sizes) < 44:
        sizes.append(tuple(rng.randint(1, 260) for _ in range(4)))
    lines = []
    for index, (w, h, to_w, to_h) in enumerate(sizes):
        name = ("noise", "gradient", "checks")[index % 3]
        image = Image.fromarray(pattern(name, w, h))
        for key, value in FILTERS.items():
            out = image.resize((to_w, to_h), value).tobytes()
            lines.append("\t".join(map(str, (w, h, to_w, to_h, key, name, hashlib.sha256(out).hexdigest()))))
    (HERE / "resize.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    jpegs()
    pngs()
    others()
    resizes()
