"""Reverse proxies with the configurations of docs/proxies.md, in front of a running server.

    python proxies_suite.py PATH-OF-THE-MILLRACE-BINARY FOLDER-FOR-PROGRAMS

The server's credit window is a few tokens, and this client acknowledges each: a proxy that holds tokens back stops the stream.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import traceback

import websockets
from suite import Server

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "proxies.md"
WINDOW = 4
TOKENS = 24
NAME = "mill.example.com"
MODEL = "millrace-mini"
# The prefix of all paths of the second server.
PREFIX = "/llm"
# How long a token, or the end of a stream, is waited for.
WAIT_S = 10
# How long a proxy that buffers is watched.
STALL_S = 2
# How long a proxy may take to end.
STOP_S = 10


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def configuration(language):
    """The page's only block of a language."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return block


def program(name, folder):
    """A program that is installed, or unpacked from Debian's package; `None` if neither is possible."""
    unpacked = pathlib.Path(folder) / "debian"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", str(unpacked / "usr/sbin"), str(unpacked / "usr/bin")])
    found = shutil.which(name, path=path)
    if found:
        return found
    unpacked.mkdir(parents=True, exist_ok=True)
    script = 'apt-get download "$0" || { apt-get update && apt-get download "$0"; } && dpkg -x "$0"_*.deb .'
    subprocess.run(["bash", "-c", script, name], cwd=unpacked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return shutil.which(name, path=path)


def nginx(binary, folder, server, port, extra=""):
    certificate, key = f"{folder}/mill.pem", f"{folder}/mill.key"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}"]
    subprocess.run([*request, "-out", certificate, "-keyout", key], check=True, stderr=subprocess.DEVNULL)
    block = configuration("nginx").replace("/etc/ssl/mill.pem", certificate).replace("/etc/ssl/mill.key", key)
    block = block.replace("listen 443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:8420", server.url.removeprefix("http://"))
    block = block.replace("proxy_buffering off;", extra or "proxy_buffering off;")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = pathlib.Path(folder) / "nginx.conf"
    config.write_text(f"user root;\npid {folder}/nginx.pid;\nerror_log stderr warn;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{block}}}\n")
    return [binary, "-p", folder, "-c", str(config), "-g", "daemon off;"]


def caddy(binary, folder, server, port):
    block = configuration("caddy").replace(f"{NAME} {{", f"https://127.0.0.1:{port}, https://{NAME}:{port} {{\n\ttls internal")
    block = block.replace("127.0.0.1:8420", server.url.removeprefix("http://"))
    options = f"{{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n\tstorage file_system {folder}/caddy\n}}\n"
    config = pathlib.Path(folder) / "Caddyfile"
    config.write_text(options + block)
    return [binary, "run", "--adapter", "caddyfile", "--config", str(config)]


class Curl:
    """A streamed completion through the proxy, read line by line."""

    def __init__(self, url, *fields, version="--http1.1"):
        body = {"model": MODEL, "prompt": "Once", "max_tokens": TOKENS, "ignore_eos": True, "seed": 7, "stream": True}
        headers = [part for field in (*fields, f"host: {NAME}", "x-stream-acks: explicit") for part in ("-H", field)]
        command = ["curl", "-skNi", version, f"{url}/v1/completions", *headers, "-d", json.dumps(body)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        self.pending = b""

    def line(self, wait_s=WAIT_S):
        """The next line; empty at the end. Raises `TimeoutError` if none comes."""
        deadline = time.monotonic() + wait_s
        while b"\n" not in self.pending:
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no line within {wait_s} s")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                return ""
            self.pending += part
        line, _, self.pending = self.pending.partition(b"\n")
        return line.decode().strip("\r") + "\n"

    def head(self):
        """Fields of the response."""
        fields = {}
        while line := self.line():
            name, _, value = line.strip().partition(":")
            if not name:
                return fields
            fields[name.lower()] = value.strip()
        raise AssertionError(f"no response, or not all of its head: {fields}")

    def first_token(self):
        """Reads on until a token has come."""
        while not (line := self.line()).startswith("data: "):
            assert line, "the stream ended without a token"

    def leave(self):
        self.process.kill()
        self.process.wait()


def call(url, method, path, body=None, version="--http1.1"):
    """Status, version of HTTP and text of a request through the proxy."""
    command = ["curl", "-sk", version, "-X", method, f"{url}{path}", "-H", f"host: {NAME}", "-w", "\n%{http_code} %{http_version}"]
    data = ["--data-binary", "@-"] if body is not None else []
    told = subprocess.run([*command, *data], input=json.dumps(body).encode(), capture_output=True, check=True, timeout=60).stdout.decode()
    text, _, last = told.rpartition("\n")
    status, http = last.split()
    return int(status), http, text


def one_by_one(url, version, wait_s=WAIT_S):
    """Reads an answer in steps of one token; returns the number of events."""
    stream, events = Curl(url, "x-stream-resumable: 1", version=version), 0
    try:
        stream.head()
        while line := stream.line(wait_s):
            if line.startswith("id: "):
                stream_id, _, position = line.removeprefix("id: ").strip().partition(":")
                events += 1
                index = int(position.split(".")[0])
                status, _, text = call(url, "POST", f"/v1/streams/{stream_id}/ack", {"index": min(index, TOKENS)})
                assert status < 300, (status, text)
            if line == "data: [DONE]\n":
                return events
        raise AssertionError(f"the stream was cut after {events} events")
    finally:
        stream.leave()


def tokens_pass(url):
    """tokens pass one by one, over HTTP/1.1 and HTTP/2"""
    for version in ("--http1.1", "--http2"):
        events = one_by_one(url, version)
        assert events >= TOKENS // WINDOW, f"{events} events {version}"
    assert call(url, "GET", "/health", version="--http2")[:2] == (200, "2")


def leaving_is_noticed(url):
    """a stream whose client leaves is cancelled"""
    stream = Curl(url)
    stream_id = stream.head()["x-stream-id"]
    stream.first_token()
    assert call(url, "GET", f"/v1/streams/{stream_id}")[0] == 200
    stream.leave()
    deadline = time.monotonic() + WAIT_S
    while (status := call(url, "GET", f"/v1/streams/{stream_id}")[0]) == 200:
        assert time.monotonic() < deadline, "the stream goes on after its client left"
        time.sleep(0.05)
    assert status in (404, 410), status


def websockets_pass(url):
    """an answer over a WebSocket"""

    async def read():
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = url.replace("https", "wss") + "/v1/realtime/streams"
        async with websockets.connect(address, ssl=context) as connection:
            assert json.loads(await connection.recv())["type"] == "welcome"
            body = {"model": MODEL, "prompt": "Once", "max_tokens": TOKENS, "ignore_eos": True}
            await connection.send(json.dumps({"type": "open", "request": "a", "body": body}))
            while (message := json.loads(await asyncio.wait_for(connection.recv(), WAIT_S)))["type"] != "ended":
                pass
            assert message["reason"] == "MAX_TOKENS", message

    asyncio.run(read())


def large_request(url):
    """a request of 2 MiB reaches the server"""
    status, _, text = call(url, "POST", "/v1/completions", {"model": MODEL, "prompt": "a " * (1 << 20), "max_tokens": 1})
    assert status == 400 and "error" in json.loads(text), (status, text[:200])


def other_paths_are_refused(url):
    """a path without the prefix is a 404 that names it"""
    status, _, text = call(url.removesuffix(PREFIX), "GET", "/v1/models")
    assert status == 404 and PREFIX in text, (status, text[:200])


@contextlib.contextmanager
def running(command, port):
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + WAIT_S
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert process.poll() is None and time.monotonic() < deadline, f"{command[0]} does not listen"
            time.sleep(0.05)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            # Caddy waits for open connections: one of them is that of a stream whose client has left.
            process.kill()
            process.wait()
            raise AssertionError(f"{pathlib.Path(command[0]).name} has open connections {STOP_S} s after its end was asked for") from None


def check(name, function, url):
    try:
        function(url)
        print(f"ok    {name}: {function.__doc__}")
        return 0
    except Exception:
        print(f"FAIL  {name}: {function.__doc__}")
        traceback.print_exc()
        return 1


def buffering_stops(url):
    """control: with buffering forced on, the stream stops"""
    with contextlib.suppress(TimeoutError):
        one_by_one(url, "--http1.1", STALL_S)
        raise AssertionError("tokens passed one by one")


def behind_a_prefix():
    """The checks with `server.api_prefix`, through nginx, which passes paths on as they are; returns the number of failures."""
    binary, failed = program("nginx", sys.argv[2]), 0
    if binary is None:
        return 0
    os.environ["MILLRACE_SERVER_API_PREFIX"] = PREFIX
    with tempfile.TemporaryDirectory() as folder:
        server, port = Server(sys.argv[1], folder), free_port()
        with running(nginx(binary, folder, server, port), port) as url:
            for function in (tokens_pass, leaving_is_noticed, websockets_pass, other_paths_are_refused):
                failed += check(f"nginx, {PREFIX}", function, url + PREFIX)
        failed += server.stop() != 0
    return failed


def main():
    os.environ |= {"MILLRACE_SERVER_HOSTS": NAME, "MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS": str(WINDOW)}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(sys.argv[1], folder)
        for name, configure in (("nginx", nginx), ("caddy", caddy)):
            binary = program(name, sys.argv[2])
            if binary is None:
                print(f"\nSKIPPED: {name} is not installed and cannot be fetched with apt-get: its part of docs/proxies.md is NOT TESTED\n")
                continue
            port = free_port()
            with running(configure(binary, folder, server, port), port) as url:
                for function in (tokens_pass, leaving_is_noticed, websockets_pass, large_request):
                    failed += check(name, function, url)
            if configure is nginx:
                port, forced = free_port(), "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;"
                with running(nginx(binary, folder, server, port, forced), port) as url:
                    failed += check(name, buffering_stops, url)
        failed += server.stop() != 0
    failed += behind_a_prefix()
    print(f"{failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
