"""PNG files of kinds that Pillow reads but does not write: 16 bits, interlaced."""

import struct
import zlib

import numpy as np


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def file(width, height, depth, color, interlace, data, extra=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            extra,
            chunk(b"IDAT", zlib.compress(data)),
            chunk(b"IEND", b""),
        ]
    )


def rows(values):
    """Rows without a filter. `values` is (height, bytes of a row)."""
    return b"".join(b"\0" + row.tobytes() for row in values)


def interlaced(pixels):
    """The seven passes of (height, width, bytes of a pixel)."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x, y, dx, dy in passes:
        part = pixels[y::dy, x::dx]
        if part.size:
            data += rows(part.reshape(part.shape[0], -1))
    return data


def files():
    from pictures import pattern

    rgb = pattern("noise", 13, 9)
    alpha = pattern("gradient", 13, 9)[..., :1]
    rgba = np.concatenate([rgb, alpha], axis=-1)
    high = np.stack([rgb, 255 - rgb], axis=-1).reshape(9, -1)
    yield "png-rgb-16.png", file(13, 9, 16, 2, 0, rows(high))
    high = np.stack([rgba, 255 - rgba], axis=-1).reshape(9, -1)
    yield "png-rgba-16.png", file(13, 9, 16, 6, 0, rows(high))
    yield "png-rgb-interlaced.png", file(13, 9, 8, 2, 1, interlaced(rgb))
    yield "png-rgba-interlaced.png", file(13, 9, 8, 6, 1, interlaced(rgba))
    yield "png-gray-interlaced.png", file(13, 9, 8, 0, 1, interlaced(rgb[..., :1]))
    gray = np.packbits(np.unpackbits(rgb[..., 0], axis=1)[:, :52], axis=1)
    yield "png-gray-4.png", file(13, 9, 4, 0, 0, rows(gray))
    gray = np.packbits(np.unpackbits(rgb[..., 0], axis=1)[:, :26], axis=1)
    yield "png-gray-2.png", file(13, 9, 2, 0, 0, rows(gray))
