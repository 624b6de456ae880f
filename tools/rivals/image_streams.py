#!/usr/bin/env python3
"""What an image in one stream costs the others, and what an image costs that was seen before.

    python image_streams.py --millrace target/release/millrace --examples target/release/examples --models FOLDER

Seven streams generate; the eighth request has nothing, an image, or a text of as many tokens, in turn. Printed: milliseconds
between two tokens of the seven while the eighth is computed, and the time to its first token. Then an image that was encoded
before (with another question, so that no page is shared) against text of that length, one request at a time, in turn.
The text model has the shape of Llama 3.2 1B, the tower that of SmolVLM's; both have random weights.
"""

import argparse
import base64
import http.client
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import threading
import time
import urllib.parse
import zlib

from servers import Millrace

STREAMS, TOKENS, EDGE = 7, 400, 512


def png(seed):
    """A picture of noise in large blocks, as a data URL."""
    noise = random.Random(seed)
    blocks = [[bytes(noise.randrange(256) for _ in range(3)) for _ in range(8)] for _ in range(8)]
    rows = b"".join(b"\0" + b"".join(blocks[y * 8 // EDGE][x * 8 // EDGE] for x in range(EDGE)) for y in range(EDGE))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", EDGE, EDGE, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


class Stream:
    """A streamed chat: the times of its events with text, and the tokens of its prompt."""

    def __init__(self, url, content, tokens):
        place = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(place.hostname, place.port, timeout=600)
        body = {"model": "any", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": tokens,
                "ignore_eos": True, "temperature": 0, "messages": [{"role": "user", "content": content}]}
        self.begin, self.times, self.prompt_tokens = time.perf_counter(), [], 0
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})

    def read(self):
        answer = self.connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode())
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("usage"):
                self.prompt_tokens = event["usage"]["prompt_tokens"]
            if event.get("choices"):
                self.times.append(time.perf_counter())
        self.connection.close()
        return self

    def first_ms(self):
        return 1e3 * (self.times[0] - self.begin)


def words(seed, count):
    noise = random.Random(seed)
    return " ".join("".join(noise.choice("abcdefgh") for _ in range(3)) for _ in range(count))


def image(seed, question):
    return [{"type": "image_url", "image_url": {"url": png(seed)}}, {"type": "text", "text": question}]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def beside(url, number, eighth):
    """Times between tokens of seven streams while the eighth request waits for its first token, and that wait."""
    streams = [Stream(url, words(number * 10 + at, 40), TOKENS) for at in range(STREAMS)]
    threads = [threading.Thread(target=stream.read) for stream in streams]
    for thread in threads:
        thread.start()
    while any(len(stream.times) < 20 for stream in streams):
        time.sleep(0.01)
    begin = time.perf_counter()
    first = None
    if eighth is None:
        time.sleep(3)
    else:
        first = Stream(url, eighth, 2).read().first_ms()
    end = time.perf_counter()
    for thread in threads:
        thread.join()
    gaps = []
    for stream in streams:
        for a, b in zip(stream.times, stream.times[1:]):
            if begin <= a < end:
                gaps.append(1e3 * (b - a))
    return gaps, first


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millrace", type=pathlib.Path, required=True, help="our release binary")
    parser.add_argument("--examples", type=pathlib.Path, required=True, help="the folder with `tower_speed`")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder for synthetic models")
    parser.add_argument("--format", default="Q4_K_M", help="of the text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    mmproj, text = args.models / "streams.mmproj.gguf", args.models / f"streams-{args.format}.gguf"
    if not text.exists():
        subprocess.run([args.examples / "tower_speed", "write", "siglip-b", "F16", "12", mmproj, text, "llama-1b", args.format],
                       check=True)
    server = Millrace(args.millrace, text, args.threads, STREAMS + 1, args.models / "streams.log", ("--mmproj", mmproj))
    try:
        measure(args, server.url)
    finally:
        server.stop()


def measure(args, url):
    rows = Stream(url, image(0, "a"), 2).read().prompt_tokens
    per_word = Stream(url, words(1, 100), 2).read().prompt_tokens / 100
    count = int(rows / per_word)
    found = {"nothing": [], "text": [], "an image": []}
    waits = {"text": [], "an image": []}
    for number in range(args.rounds):
        for name, eighth in (("nothing", None), ("text", words(1000 + number, count)), ("an image", image(100 + number, "b"))):
            gaps, first = beside(url, number, eighth)
            found[name] += gaps
            if first:
                waits[name].append(first)
    print(f"{STREAMS} streams, {rows} tokens in the eighth request, {args.threads} threads, {args.rounds} rounds in turn\n\n"
          "| eighth request | between tokens p50, p99, max, ms | p99 / that with nothing | its first token, ms |\n|---|---|---|---|")
    base = percentile(found["nothing"], 0.99)
    for name, gaps in found.items():
        p50, p99 = percentile(gaps, 0.5), percentile(gaps, 0.99)
        wait = f"{statistics.median(waits[name]):.0f}" if name in waits else "-"
        print(f"| {name} | {p50:.1f}, {p99:.1f}, {max(gaps):.1f} | {p99 / base:.2f} | {wait} |")
    own, theirs = [], []
    for number in range(5 * args.rounds):
        own.append(Stream(url, image(0, f"c{number}"), 2).read().first_ms())
        theirs.append(Stream(url, words(5000 + number, count), 2).read().first_ms())
    one, other = statistics.median(own), statistics.median(theirs)
    print(f"\nFirst token of an image that was encoded before: {one:.0f} ms, of as much text {other:.0f} ms, ratio {one / other:.3f}"
          f" (medians of {len(own)} in turn)")


if __name__ == "__main__":
    main()
