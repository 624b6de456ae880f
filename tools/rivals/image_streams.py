#!/usr/bin/env python3
"""What an image in one stream costs the others, and what an image costs that was seen before.

    python image_streams.py --millrace target/release/millrace --examples target/release/examples --models FOLDER [--quick]

Seven streams generate; the eighth request has an image or a text of as many tokens, in turn. Printed: milliseconds between two
tokens of the seven while the eighth is computed, and in the seconds before and after it, and the time to its first token. Then an image that was encoded
before (behind other words, so that no page of the prefix cache is shared) against text of that length, one request at a time, in turn.
The text model has the shape of Llama 3.2 1B, the tower that of SmolVLM's; both have random weights. `--gemma3` has those of
Gemma 3 4B, whose image is computed in a pass that pauses between layers.
`--quick` has two layers of the tower, one round and a small text model, whose steps take a millisecond: a look whether all of this
runs, in a minute. Only ratios between text and image say something there: without a prompt or an image, a step is that short.
`cargo xtask rivals --image-streams` builds what this needs and calls it.
"""

import argparse
import base64
import dataclasses
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
import urllib.request
import zlib

from servers import Millrace

STREAMS = 7
# Tokens of a stream that have come before the eighth request is sent.
BEFORE = 20
# Seconds before an eighth request, and after it, that are compared with it: a token takes the longer the more there are before.
NOTHING_S = 5


@dataclasses.dataclass
class Shape:
    """Shape, layers and pixels of an edge of the tower, and preset of the text."""

    tower: str
    layers: int
    edge: int
    text: str


FULL, QUICK = Shape("siglip-b", 12, 512, "llama-1b"), Shape("siglip-b", 2, 512, "small-llama")
GEMMA3 = Shape("gemma3", 27, 896, "gemma3-4b")


def png(seed, edge):
    """A picture of noise in large blocks, as a data URL."""
    noise = random.Random(seed)
    blocks = [[bytes(noise.randrange(256) for _ in range(3)) for _ in range(8)] for _ in range(8)]
    rows = b"".join(b"\0" + b"".join(blocks[y * 8 // edge][x * 8 // edge] for x in range(edge)) for y in range(edge))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", edge, edge, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


class Stream:
    """A streamed chat: the times of its events with text, and the counts of its usage."""

    def __init__(self, url, content, tokens):
        place = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(place.hostname, place.port, timeout=600)
        body = json.dumps({
            "stream": True, "stream_options": {"include_usage": True}, "max_tokens": tokens,
            "ignore_eos": True, "temperature": 0, "messages": [{"role": "user", "content": content}]}).encode()
        self.times, self.usage = [], {}
        self.begin = time.perf_counter()
        self.connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})

    def read(self):
        answer = self.connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode())
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now, event = time.perf_counter(), json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"])
            self.usage = event.get("usage") or self.usage
            if any(choice["delta"].get("content") for choice in event.get("choices", [])):
                self.times.append(now)
        self.connection.close()
        return self

    def first_ms(self):
        return 1e3 * (self.times[0] - self.begin)

    def prompt_tokens(self):
        return self.usage["prompt_tokens"]

    def cached_tokens(self):
        return (self.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def words(seed, count):
    noise = random.Random(seed)
    return " ".join("".join(noise.choice("abcdefgh") for _ in range(3)) for _ in range(count))


def image(seed, before, edge):
    """An image behind words: the same image behind others shares no page of the prefix cache."""
    return [{"type": "text", "text": before}, {"type": "image_url", "image_url": {"url": png(seed, edge)}}]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def encoder_counts(url):
    """The encoder's counters: seconds of steps, inputs that were encoded, and inputs whose rows were there."""
    with urllib.request.urlopen(url + "/metrics") as reply:
        lines = [line.split() for line in reply.read().decode().splitlines()]
    wanted = ("encode_seconds_total", "encodings_total", "encoding_hits_total")
    return {name: sum(float(line[-1]) for line in lines if line[:1] == [f"millrace_{name}"]) for name in wanted}


class Beside:
    """The seven streams of one round, and an eighth request."""

    def __init__(self, url, number, eighth, tokens):
        streams = [Stream(url, words(number * 10 + at, 40), tokens) for at in range(STREAMS)]
        threads = [threading.Thread(target=stream.read) for stream in streams]
        for thread in threads:
            thread.start()
        while any(len(stream.times) < BEFORE for stream in streams):
            if not all(thread.is_alive() for thread in threads):
                raise RuntimeError("a stream ended before the eighth request was sent")
            time.sleep(0.01)
        time.sleep(NOTHING_S)
        begin = time.perf_counter()
        self.first_ms = Stream(url, eighth, 2).read().first_ms()
        end = time.perf_counter()
        time.sleep(NOTHING_S)
        self.is_covered = all(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()

        def gaps(begin, end):
            return [1e3 * (b - a) for stream in streams for a, b in zip(stream.times, stream.times[1:]) if begin <= a < b < end]

        self.gaps = gaps(begin, end)
        # The second after the end of the eighth still has its last step.
        self.gaps_without = gaps(begin - NOTHING_S, begin) + gaps(end + 1, end + NOTHING_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millrace", type=pathlib.Path, required=True, help="our release binary")
    parser.add_argument("--examples", type=pathlib.Path, required=True, help="the folder with `tower_speed`")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder for synthetic models")
    parser.add_argument("--format", default="Q4_K_M", help="of the text")
    parser.add_argument("--rounds", type=int, help="default: 3, quick 1")
    parser.add_argument("--tokens", type=int, default=400, help="of each of the seven streams")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--quick", action="store_true", help="small models, one round")
    shapes.add_argument("--gemma3", action="store_true", help="Gemma 3 4B")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    shape = QUICK if args.quick else GEMMA3 if args.gemma3 else FULL
    args.models.mkdir(parents=True, exist_ok=True)
    mmproj = args.models / f"streams-{shape.tower}-{shape.layers}.mmproj.gguf"
    text = args.models / f"streams-{shape.text}-{args.format}.gguf"
    if not text.exists() or not mmproj.exists():
        write = [args.examples / "tower_speed", "write", shape.tower, "F16", str(shape.layers), mmproj, text, shape.text, args.format]
        subprocess.run(write, check=True)
    log = args.models / "streams.log"
    server = Millrace(args.millrace, text, args.threads, STREAMS + 1, log, ("--mmproj", mmproj))
    try:
        length = measure_beside(args, shape.edge, server.url)
        measure_again(args, shape.edge, server.url, length)
    finally:
        server.stop()


def measure_beside(args, edge, url):
    """Prints what the eighth request costs the seven streams. Returns words of as many tokens as an image has."""
    rows = Stream(url, image(0, "a", edge), 2).read().prompt_tokens()
    per_word = Stream(url, words(1, 100), 2).read().prompt_tokens() / 100
    count = int(rows / per_word)
    gaps = {"nothing": [], "text": [], "an image": []}
    waits = {"text": [], "an image": []}
    before = encoder_counts(url)
    for number in range(args.rounds):
        eighths = {"text": words(1000 + number, count), "an image": image(100 + number, f"b{number}", edge)}
        for name, eighth in eighths.items():
            round = Beside(url, number, eighth, args.tokens)
            if not round.is_covered:
                print(f"note: with {name}, streams ended too early after the first token of the eighth request: give more --tokens")
            gaps[name] += round.gaps
            gaps["nothing"] += round.gaps_without
            waits[name].append(round.first_ms)
    seconds, encoded, hits = (value - before[name] for name, value in encoder_counts(url).items())
    print(f"{STREAMS} streams, {rows} tokens in the eighth request, {args.threads} threads, {args.rounds} rounds in turn\n\n"
          "| eighth request | tokens | between tokens: p50, ms | p99, ms | max, ms | p50 / that with nothing | p99 / that with nothing"
          " | p99 / that with text | its first token, ms |\n|---|---|---|---|---|---|---|---|---|")
    p50, p99 = ({name: percentile(all, share) for name, all in gaps.items()} for share in (0.5, 0.99))
    for name, all in gaps.items():
        wait = f"{statistics.median(waits[name]):.0f}" if name in waits else "-"
        print(f"| {name} | {len(all)} | {p50[name]:.1f} | {p99[name]:.1f} | {max(all):.1f} | {p50[name] / p50['nothing']:.2f}"
              f" | {p99[name] / p99['nothing']:.2f} | {p99[name] / p99['text']:.2f} | {wait} |")
    print(f"\nThe encoder computed {encoded:.0f} pictures in {1e3 * seconds / max(encoded, 1):.0f} ms each, and had {hits:.0f}")
    return count


def measure_again(args, edge, url, count):
    """Prints the first token of an image that was encoded before, next to that of text of its length."""
    own, theirs = [], []
    for number in range(5 * args.rounds):
        own.append(Stream(url, image(0, f"c{number}", edge), 2).read())
        theirs.append(Stream(url, words(5000 + number, count), 2).read())
    one, other = (statistics.median(stream.first_ms() for stream in streams) for streams in (own, theirs))
    lengths = [(streams[-1].prompt_tokens(), max(stream.cached_tokens() for stream in streams)) for streams in (own, theirs)]
    print(f"\nFirst token of an image that was encoded before: {one:.0f} ms, of as much text {other:.0f} ms, ratio {one / other:.3f}"
          f" (medians of {len(own)} in turn; {lengths[0][0]} and {lengths[1][0]} tokens, of which at most {lengths[0][1]} and"
          f" {lengths[1][1]} were cached)")


if __name__ == "__main__":
    main()
