"""Runs the shell commands of README.md and docs/*.md as a reader would, on the built-in model.

    python3 tools/docs/commands.py MILLRACE

A fenced block is shell if its language is sh, bash, shell or console (there, lines with `$ `), or if it has no
language and begins with a program of `PROGRAMS`. Each command runs in a scratch folder, with one server behind it:
exit status 0, no HTTP status of 400 or more, no `error` in what it prints. `millrace serve` must come up, and
stop cleanly.

Blocks of other programs, and commands that cannot run here, are marked before the block, where no reader sees it:

    <!-- not run: why -->                 the whole block
    <!-- not run (WORD, WORD): why -->    its commands that contain one of these words

Model files, other ports, ids and so on stand for what this machine has: `substituted`.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELL = {"sh", "bash", "shell", "console"}
PROGRAMS = ("curl", "millrace", "cargo", "cat", "printf")
# A block begins with one of these, also after variables.
BEGINS = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?(\w[\w.-]*)")
FENCE = re.compile(r"(?:^<!-- not run(?: \(([^)]*)\))?: ([^>]*) -->\n+)?^( *)```(\w*)\n(.*?)^ *```", re.M | re.S)
SECONDS_MAX = 60
# A model of this size is written before the first command.
SYNTH = ["--preset", "tiny-llama", "--quant", "Q8_0", "--train-context", "2048"]
QUESTIONS = 4


def substituted(server):
    """What documents name, and what this machine has in its place."""
    return [
        (re.compile(r"\b(?:MODEL|model|1b|small)\.gguf\b"), "synthetic.gguf"),
        (re.compile(r"(?<!\S)crates/"), f"{ROOT}/crates/"),
        (re.compile(r"llama-1b:Q4_K_M"), "tiny-llama:Q8_0"),
        (re.compile(r"--preset llama-1b\b"), "--preset tiny-llama"),
        (re.compile(r"(?:localhost|127\.0\.0\.1):8420\b"), f"127.0.0.1:{server.port}"),
        (re.compile(r"tools/train/held-out\.jsonl"), "questions.jsonl"),
        (re.compile(r"\bresp_…"), "$RESPONSE"),
    ]


class Command:
    def __init__(self, document, line, text):
        self.document, self.line, self.text = document, line, text

    def __str__(self):
        first = self.text.splitlines()[0]
        return f"{self.document}:{self.line}: {first}"


def commands(path):
    """The commands of a document to run, and those it says are not."""
    text = path.read_text()
    run, left_out = [], []
    for found in FENCE.finditer(text):
        words, why, _, language, body = found.groups()
        first = BEGINS.match(body)
        is_shell = language in SHELL or (not language and first and first[1] in PROGRAMS)
        if not is_shell:
            continue
        line = text[: found.start(5)].count("\n") + 1
        for offset, command in split(body, language == "console"):
            command = Command(path.relative_to(ROOT), line + offset, command)
            named = [word.strip() for word in (words or "").split(",") if word.strip()]
            if why and (not named or any(word in command.text for word in named)):
                left_out.append((command, why))
            else:
                run.append(command)
    return run, left_out


def split(body, is_console):
    """A block's commands: a line each, and as many more as its quotes and backslashes need."""
    pending, start = "", 0
    for number, line in enumerate(body.splitlines()):
        if not pending:
            if is_console and not line.startswith("$ "):
                continue
            start, line = number, line.removeprefix("$ ")
        pending += line + "\n"
        if subprocess.run(["bash", "-n"], input=pending, text=True, capture_output=True).stderr:
            continue
        if pending.rstrip().endswith("\\"):
            continue
        if re.sub(r"^\s*#.*", "", pending, flags=re.M).strip():
            yield start, pending.strip()
        pending = ""
    if pending:
        yield start, pending.strip()


class Server:
    """A server of the built-in model that the commands talk to."""

    def __init__(self, folder):
        self.process, self.url = serve(["millrace", "serve"], folder)
        self.port = self.url.rsplit(":", 1)[1]

    def post(self, path, body, **headers):
        headers |= {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        return urllib.request.urlopen(request, timeout=SECONDS_MAX)

    def variables(self):
        """Streams that commands name: one that runs for as long as it likes, one that is kept, a response."""
        long = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True}
        running = json.load(self.post("/v1/jobs", long))["job_id"]
        with self.post("/v1/completions", long | {"max_tokens": 8, "stream": True}, **{"x-stream-resumable": "1"}) as kept:
            lines = kept.read().decode().splitlines()
        last = next(line[4:] for line in lines if line.startswith("id: "))
        body = {"input": "Tell me about rivers.", "max_output_tokens": 40, "background": True, "ignore_eos": True, "stream": True}
        with self.post("/v1/responses", body) as told:
            response = re.search(r'"id":"(resp_[^"]+)"', told.read().decode())[1]
        return {"ID": last.split(":")[0], "RUNNING": running, "LAST": last, "RESPONSE": response}


def serve(command, folder):
    """Starts a server; gives it and its address when it takes requests."""
    # The log has a line for each request: a pipe that is not read would stop the server.
    log = open(folder / "serve.log", "w+")
    process = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=log, text=True)
    for line in process.stdout:
        found = re.search(r" serves .*(http://[\d.]+:\d+)", line)
        if found:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, found[1].replace("0.0.0.0", "127.0.0.1")
    log.seek(0)
    raise RuntimeError(f"{command}: {log.read()}")


def stop(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=SECONDS_MAX)


def environment(folder, port=0):
    home = folder / "home"
    variables = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_DATA_HOME": str(home / "cache")}
    settings = {"MILLRACE_SERVER_BIND": f"127.0.0.1:{port}", "MILLRACE_WORKFLOWS_FOLDER": "workflows"}
    return {**variables, **settings, "NO_PROXY": "*", "LANG": "C.UTF-8"}


def prepare(folder, binary):
    """What a reader would have: the programs, the project's files, a model."""
    (folder / "bin").mkdir()
    (folder / "home").mkdir()
    (folder / "bin" / "millrace").symlink_to(binary)
    curl = '#!/bin/sh\nexec /usr/bin/env -i PATH=/usr/bin:/bin curl --noproxy "*" --fail-with-body -sS -m 60 "$@"\n'
    (folder / "bin" / "curl").write_text(curl)
    # `cargo run` is the binary that is there.
    cargo = '#!/bin/sh\n[ "$1" = run ] || exit 64\nshift\nwhile [ $# -gt 0 ]; do [ "$1" = -- ] && shift && break; shift; done\nexec millrace "$@"\n'
    (folder / "bin" / "cargo").write_text(cargo)
    for name in ("curl", "cargo"):
        (folder / "bin" / name).chmod(0o755)
    for name in ("workflows", "tools", "docs", "deploy"):
        (folder / name).symlink_to(ROOT / name)
    questions = (ROOT / "tools/train/held-out.jsonl").read_text().splitlines()[:QUESTIONS]
    (folder / "questions.jsonl").write_text("\n".join(questions) + "\n")
    (folder / "letter.txt").write_text("Dear reader,")
    for command in (["synth", "synthetic.gguf", *SYNTH], ["keys", "--file", "keys.yaml", "new", "somebody"]):
        subprocess.run(["millrace", *command], cwd=folder, env=environment(folder), check=True, capture_output=True)


def foreign(text):
    """The program of a command, if it is none of those that run here."""
    first = BEGINS.match(text)
    return None if first and first[1] in PROGRAMS else first and first[1] or text


def serves(text):
    """Whether a command is a server that runs until it is stopped."""
    plain = re.sub(r"\s*#.*", "", text).strip().rstrip("&").strip()
    plain = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", plain)
    return re.match(r"(millrace serve\b|millrace$|cargo run --release( -- serve\b.*)?$)", plain) is not None


def run(command, server, folder):
    """Why a command failed; None if it did not."""
    text = command.text
    if program := foreign(text):
        return f"`{program}` does not run here: put <!-- not run: why --> before the block"
    for pattern, instead in substituted(server):
        text = pattern.sub(instead, text)
    if serves(command.text):
        return run_server(text, folder)
    variables = environment(folder, server.port)
    if re.search(r"\$(ID|LAST|RESPONSE)\b", text):
        more = server.variables()
        if "/control" in text:
            more["ID"] = more["RUNNING"]
        variables |= more
    try:
        done = subprocess.run(["bash", "-ec", text], cwd=folder, env=variables, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return f"ran longer than {SECONDS_MAX} s"
    told = (done.stdout + done.stderr)[-2000:]
    if done.returncode:
        return f"exit status {done.returncode}: {told}"
    if re.search(r'"error": ?[{"]|^event: error', done.stdout, re.M):
        return f"tells of an error: {told}"
    return None


def run_server(text, folder):
    """Starts it on a free port, and stops it."""
    text = re.sub(r"\s*(?:#.*)?$", "", text).removesuffix("&")
    text = re.sub(r"--bind \S+", "", text)
    text = re.sub(r"millrace|cargo run", r"exec \g<0>", text, count=1)
    try:
        process, _ = serve(["bash", "-c", text], folder)
    except RuntimeError as why:
        return str(why)
    status = stop(process)
    return f"exit status {status}" if status else None


def wrong_models(path, served):
    """Models that a document's blocks name and the server does not have; names may have a client's prefix."""
    for found in FENCE.finditer(path.read_text()):
        for name in re.findall(r"""["']?\bmodel["']?\s*[:=]\s*["']([^"']+)["']""", found[5]):
            if not found[2] and not any(name.endswith(own) for own in served):
                yield f"{path.relative_to(ROOT)}: a block names the model {name!r}, which is not there"


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    failed, ran, left_out = [], 0, []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        prepare(folder, binary)
        server = Server(folder)
        with urllib.request.urlopen(server.url + "/v1/models") as models:
            served = [model["id"] for model in json.load(models)["data"]]
        for document in documents:
            failed += wrong_models(document, served)
            to_run, not_run = commands(document)
            left_out += not_run
            for command in to_run:
                ran += 1
                began = time.monotonic()
                why = run(command, server, folder)
                print(f"{'FAIL' if why else 'ok  '} {time.monotonic() - began:5.1f} s  {command}", flush=True)
                if why:
                    failed.append(f"{command}\n    {why}")
        if stop(server.process):
            failed.append("the server did not stop cleanly")
    for command, why in left_out:
        print(f"not run: {command} ({why})")
    for why in failed:
        print(f"FAIL {why}")
    print(f"{ran} commands run, {len(left_out)} not, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
