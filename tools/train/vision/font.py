"""Digits for pictures: a bitmap font of 5 by 7 dots, and the seven segments of a display."""

from PIL import Image, ImageDraw

DOTS = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00010 00100 01000 11111",
    "3": "11111 00010 00100 00010 00001 10001 01110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
}
# Top, upper left, upper right, middle, lower left, lower right, bottom.
SEGMENTS = {
    "0": "1110111", "1": "0010010", "2": "1011101", "3": "1011011", "4": "0111010",
    "5": "1101011", "6": "1101111", "7": "1010010", "8": "1111111", "9": "1111011",
}  # fmt: skip


def dots(digit, height, smooth, plain_zero):
    """A mask of the bitmap font, `height` pixels high; smooth edges or square dots."""
    rows = DOTS[digit].split()
    if digit == "0" and plain_zero:
        rows = [rows[0], *["10001"] * 5, rows[6]]
    small = Image.new("L", (7, 9))
    for y, row in enumerate(rows):
        for x, dot in enumerate(row):
            small.putpixel((x + 1, y + 1), 255 * int(dot))
    size = (max(7, round(height * 7 / 9)), max(9, height))
    if not smooth:
        return small.resize(size, Image.Resampling.NEAREST)
    return small.resize(size, Image.Resampling.BICUBIC).point(lambda level: 255 if level > 110 else 0)


def segments(digit, height, thickness):
    """A mask of seven segments, each a bar of `thickness` (a part of the height)."""
    width = max(6, round(height * 0.58))
    height = max(10, height)
    bar = max(1.5, thickness * height)
    mask = Image.new("L", (width, height))
    draw = ImageDraw.Draw(mask)
    middle = height / 2
    boxes = (
        (0, 0, width, bar), (0, 0, bar, middle), (width - bar, 0, width, middle),
        (0, middle - bar / 2, width, middle + bar / 2), (0, middle, bar, height),
        (width - bar, middle, width, height), (0, height - bar, width, height),
    )  # fmt: skip
    for lit, box in zip(SEGMENTS[digit], boxes):
        if lit == "1":
            draw.rectangle([box[0], box[1], box[2] - 1, box[3] - 1], fill=255)
    return mask
