"""The loss by tokens seen, as a picture: `python curve.py LOG.jsonl OUT.svg`."""

import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 380, 60, 50, 20, 20


def main():
    log, out = map(pathlib.Path, sys.argv[1:])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    learnt = [(line["tokens"], line["loss"]) for line in lines]
    other = [(line["tokens"], line["other_texts"]) for line in lines if "other_texts" in line]
    right = max(x for x, _ in learnt)
    low = min(y for _, y in learnt + other) * 0.9
    high = max(y for _, y in learnt)
    across = lambda x: LEFT + x / right * (WIDTH - LEFT - RIGHT)
    up = lambda y: TOP + (math.log(high) - math.log(y)) / (math.log(high) - math.log(low)) * (HEIGHT - TOP - BOTTOM)
    line = lambda points: " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    text = lambda x, y, what, anchor="middle": f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{what}</text>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for y in (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7):
        if low < y < high:
            parts.append(f'<path d="M{LEFT} {up(y):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
            parts.append(text(LEFT - 8, up(y) + 4, f"{y:g}", "end"))
    step = max(1, round(right / 8e6)) * 1_000_000
    for x in range(0, int(right) + 1, step):
        parts.append(text(across(x), HEIGHT - BOTTOM + 18, f"{x // 1_000_000}"))
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 10, "tokens seen, millions"))
    parts.append(f'<polyline points="{line(learnt)}" fill="none" stroke="#27c" stroke-width="1.5"/>')
    parts.append(f'<polyline points="{line(other)}" fill="none" stroke="#c42" stroke-width="1.5"/>')
    parts.append(f'<text x="{WIDTH - 200}" y="40" fill="#27c">loss of a step&#8217;s texts</text>')
    parts.append(f'<text x="{WIDTH - 200}" y="58" fill="#c42">loss of texts kept back</text>')
    out.write_text("\n".join([*parts, "</svg>", ""]))


if __name__ == "__main__":
    main()
