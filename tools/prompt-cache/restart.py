"""Time to the first token of a long prompt after a restart, with and without the prompt cache on disk.

    python3 tools/prompt-cache/restart.py MILLRACE MODEL.gguf [--tokens 20000] [--rounds 3] [--threads N]

Each round: a server without the cache is started and sent the prompt; then a server with a cache that holds the prompt. The
cache is filled once, by a server that is sent the prompt twice and killed. The files are in the system's cache of files unless
`--cold` is given, which needs the right to write to /proc/sys/vm/drop_caches. Needs nothing but Python.
"""

import argparse
import http.client
import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

RUN_TOKENS = 256
WRITE_S_MAX = 600


class Server:
    """A server on a free port, with its own cache directory and no journal."""

    def __init__(self, options, folder, gib):
        command = [options.millrace, "serve", options.model, "--bind", "127.0.0.1:0", "--journal", ""]
        command += ["--context", str(options.tokens + 1024), "--cache-directory", str(folder)]
        command += ["--cache-disk-gib", str(gib)]
        if options.threads:
            command += ["--threads", str(options.threads)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().strip().rsplit("http://", 1)[-1]
        if " serves " not in self.process.stdout.readline():
            raise SystemExit("the server did not start")

    def first_token(self, ids):
        """Seconds to the first token, and how many tokens of the prompt were cached."""
        body = {"prompt": ids, "max_tokens": 4, "temperature": 0, "ignore_eos": True, "stream": True}
        body["stream_options"] = {"include_usage": True}
        connection = http.client.HTTPConnection(self.address, timeout=3600)
        started = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(response.read().decode())
        first, cached = None, 0
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event["choices"] and first is None:
                first = time.monotonic() - started
            if usage := event.get("usage"):
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return first, cached

    def metric(self, name):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def fill(options, folder, ids):
    """Has the prompt written."""
    server = Server(options, folder, options.gib)
    first, _ = server.first_token(ids)
    server.first_token(ids)
    wanted = (len(ids) - 1) // RUN_TOKENS
    until = time.monotonic() + WRITE_S_MAX
    while len(list(folder.glob("*.run"))) < wanted:
        if time.monotonic() > until:
            print("not all runs were written: a run has other than 256 tokens, or the disk is slow")
            break
        time.sleep(0.2)
    written = server.metric("millrace_prompt_disk_bytes")
    server.kill()
    print(f"filled: {written / 1e6:.0f} MB, {first:.2f} s to the first token")


def drop_file_cache():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("1\n")


def measure(options, folder, ids, gib):
    if options.cold:
        drop_file_cache()
    server = Server(options, folder, gib)
    # A short prompt first: the weights are in memory, and the threads run.
    server.first_token(ids[-64:])
    first, cached = server.first_token(ids)
    read = server.metric("millrace_prompt_disk_read_seconds_total")
    server.kill()
    return first, cached, read


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millrace")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--gib", type=int, default=16)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    ids = [10 + (i * i + 7 * i) % 200 for i in range(options.tokens)]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="millrace-prompt-cache-"))
    try:
        fill(options, folder, ids)
        without, with_cache = [], []
        for number in range(options.rounds):
            first, cached, _ = measure(options, folder, ids, 0)
            without.append(first)
            again, read_tokens, read_s = measure(options, folder, ids, options.gib)
            with_cache.append(again)
            print(
                f"round {number + 1}: without {first:.2f} s ({cached} cached), "
                f"with {again:.2f} s ({read_tokens} cached, {read_s:.2f} s of reading)"
            )
        slow, fast = statistics.median(without), statistics.median(with_cache)
        print(f"medians: without {slow:.2f} s, with {fast:.2f} s, ratio {slow / fast:.1f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
