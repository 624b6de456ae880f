"""A server that has the page's files and tells of a thousand streams: the lists and the feed, as Millrace has them.

A real server with a thousand running streams would need the processor that the browser is measured on.
"""

import http.server
import itertools
import json
import pathlib
import random
import threading
import time
import urllib.parse

FILES = pathlib.Path(__file__).parents[2] / "crates" / "page" / "files"
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
# Tokens per second of a running stream, streams that end each second, and how long an ended one is listed.
RATE, ENDS_PER_S, KEPT_S = 20, 10, 5
# Of a hundred streams: how many are in each state.
STATES = [("running", None, 80), ("parked", "credit", 8), ("queued", None, 6), ("prefilling", None, 3), ("parked", "pages", 2), ("paused", None, 1)]
WINDOW = 256
PAGE_MAX = 100


class ManyStreams:
    """Listens on a free port of 127.0.0.1; `count` streams are open at any time."""

    def __init__(self, count, files=FILES, seed=1):
        self.files, self.random, self.lock = files, random.Random(seed), threading.Lock()
        self.cursors, self.streams = itertools.count(1), []
        self.changes = threading.Condition(self.lock)
        self.events = []
        for _ in range(count):
            self.open(time.monotonic())
        handler = type("Handler", (Handler,), {"world": self})
        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"
        for work in (self.httpd.serve_forever, self.live):
            threading.Thread(target=work, daemon=True).start()

    def open(self, now):
        state, parked, _ = self.random.choices(STATES, [weight for *_, weight in STATES])[0]
        cursor = next(self.cursors)
        stream = {"cursor": cursor, "id": f"{cursor:08x}{self.random.getrandbits(96):024x}", "state": state, "parked": parked, "since": now, "ended": 0.0}
        self.streams.append(stream)

    def live(self):
        """Streams end, others begin, and the feed says so."""
        while True:
            time.sleep(1 / ENDS_PER_S)
            now = time.monotonic()
            with self.lock:
                stream = self.random.choice([one for one in self.streams if not one["ended"]])
                stream["ended"] = now
                self.streams = [one for one in self.streams if not one["ended"] or now - one["ended"] < KEPT_S]
                self.open(now)
                self.events.append({"type": "ended", "stream": stream["id"], "end": "eos"})
                self.changes.notify_all()

    def list(self, after):
        now = time.monotonic()
        with self.lock:
            later = [stream for stream in self.streams if stream["cursor"] > after]
        part = [described(stream, now) for stream in later[:PAGE_MAX]]
        return {"object": "list", "data": part, "has_more": len(later) > PAGE_MAX, "next": part[-1]["cursor"] if part else after}

    def stop(self):
        self.httpd.shutdown()
        self.httpd.server_close()


def described(stream, now):
    """A stream as `/v1/streams` describes it."""
    is_running = stream["state"] == "running"
    age = (stream["ended"] or now) - stream["since"]
    tokens = int(age * RATE) + 1 if is_running else 7
    ahead = WINDOW if stream["parked"] == "credit" else tokens * 7 % 60
    choice = {"index": 0, "tokens": tokens, "accepted": tokens - min(tokens, ahead), "unaccepted": ahead, "end": "eos" if stream["ended"] else None}
    gaps = {"mean": 1000 / RATE, "max": 90.1}
    socket = {"frames": tokens, "stall_ms": 0.0, "inter_token_ms": gaps}
    measures = {"queue_wait_ms": 1.5, "parks": 0, "pauses": 0, "preemptions": 0, "resumes": 0, "stall_ms": 0.0, "tokens_per_s": float(RATE), "inter_token_ms": gaps, "socket": socket}
    whole = {
        "object": "stream", "id": stream["id"], "cursor": stream["cursor"], "response_id": f"cmpl-{stream['id']}", "model": "millrace-mini", "dialect": "native.job",
        "state": "ended" if stream["ended"] else stream["state"], "priority": "normal", "resumable": True, "durable": False, "explicit_acks": True, "attached": True,
        "created": 1_750_000_000, "prompt_tokens": 40, "cached_tokens": 0, "prompt_done": 20 if stream["state"] == "prefilling" else 40, "completion_tokens": tokens,
        "speculation": {"drafted": 0, "accepted": 0, "acceptance_rate": None}, "credit_window": WINDOW, "choices": [choice],
        "timings_ms": {"age": int(age * 1000), "started": 2, "first_token": 9, "ended": None}, "measures": measures,
    }
    queued = {"position": stream["cursor"] % 60 + 1} if stream["state"] == "queued" else {}
    return whole | queued | ({"parked": stream["parked"]} if stream["parked"] else {})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: ManyStreams

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/":
            self.reply(self.document(), ".html")
        elif path.startswith("/page/"):
            name = path.rsplit("/", 1)[1]
            self.reply((self.world.files / name).read_bytes(), pathlib.Path(name).suffix)
        elif path == "/v1/streams":
            after = urllib.parse.parse_qs(query).get("after", ["0"])[0]
            self.reply(json.dumps(self.world.list(int(after))).encode(), "")
        elif path == "/v1/streams/feed":
            self.feed()
        elif path == "/v1/models":
            self.reply(b'{"object": "list", "data": [{"id": "millrace-mini"}]}', "")
        else:
            self.send_error(404)

    def document(self):
        files = self.world.files
        names = sorted(path.name for path in files.glob("*.js"))
        text = (files / "index.html").read_text()
        for name in ("style.css", "start.js"):
            text = text.replace("{{" + name + "}}", (files / name).read_text())
        preloads = "".join(f'<link rel="modulepreload" href="page/tree/{name}">\n' for name in names if name != "start.js")
        return text.replace("{{preloads}}", preloads).replace("{{version}}", "tree").encode()

    def reply(self, body, suffix):
        self.send_response(200)
        self.send_header("content-type", KINDS.get(suffix, "application/json"))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def feed(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        world, seen = self.world, len(self.world.events)
        while True:
            with world.changes:
                world.changes.wait_for(lambda: len(world.events) > seen)
                new, seen = world.events[seen:], len(world.events)
            try:
                self.wfile.write("".join(f"data: {json.dumps(event)}\n\n" for event in new).encode())
            except OSError:
                return

    def log_message(self, *_):
        pass
