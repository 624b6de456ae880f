"""Which suites there are, where each comes from, and how it is run against a server."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree

from stand_in import StandIn

HERE = pathlib.Path(__file__).parent
# What pytest is told for all of them. A suite's own options ask for as many processes as there are cores: the order of
# requests would be chance.
PYTEST = ["-q", "--tb=no", "-p", "no:cacheprovider", "-o", "addopts="]
# No suite takes a tenth of that.
SUITE_S = 1800

OPENAI = ["test_models.py", "test_embeddings.py", "test_completions.py", "chat", "responses", "test_responses.py"]
ANTHROPIC = ["test_messages.py", "test_models.py", "beta/test_messages.py"]
LLAMA = ["chat_completion", "compat_anthropic", "compat_oai_responses", "embedding", "tokenize"]


class Pytest:
    """A suite for pytest: from a source package of the registry, or (without one) from this folder."""

    def __init__(self, name, package, version, paths, *, fast=False, folder="", options=(), base="", made_up=False, sees=False):
        self.name, self.package, self.version, self.fast = name, package, version, fast
        self.paths, self.folder, self.options, self.base, self.made_up = paths, folder, options, base, made_up
        # Whether its server also has the model that sees images.
        self.sees = sees

    def run(self, server, place):
        """Every test's name and what became of it."""
        door = StandIn(server) if self.made_up else server
        report = place / f"{self.name}.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", *PYTEST, f"--junitxml={report}", *self.options, *self.paths]
        variables = os.environ | {"TEST_API_BASE_URL": door.url + self.base, "NO_PROXY": "127.0.0.1"}
        # How llama.cpp's tests are told of a server that is there already.
        variables |= {"DEBUG_EXTERNAL": "1", "PORT": str(server.port)}
        with open(place / f"{self.name}.log", "wb") as log:
            where = source(self.package, self.version, place) / self.folder if self.folder is not None else HERE
            subprocess.run(command, cwd=where, env=variables, stdout=log, stderr=log, timeout=SUITE_S)
        if door is not server:
            door.stop()
        if not report.exists():
            raise RuntimeError(f"{self.name}: pytest gave no report; see {place / self.name}.log")
        return dict(told(report))


def told(report):
    """What a JUnit report says of each test: passed, skipped or failed, and the first line of why."""
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        # `tests.api_resources.test_models.TestModels` and `test_list[loose]`.
        group = (case.get("classname") or "").removeprefix("tests.api_resources.").removeprefix("unit.")
        name = f"{group}::{case.get('name')}"
        kinds = {part.tag: part.get("message") or "" for part in case}
        bad = kinds.get("failure", kinds.get("error"))
        if bad is not None:
            yield name, ("failed", bad.split("\n")[0])
        else:
            yield name, ("skipped", kinds["skipped"]) if "skipped" in kinds else ("passed", "")


def source(package, version, place):
    """The folder of a package's source, as the registry has it."""
    stem = f"{package.replace('-', '_')}-{version}"
    folder = place / "sources" / stem
    if folder.exists():
        return folder
    packed = place / "sources" / f"{stem}.tar.gz"
    if not packed.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += ["--no-binary", package, "--dest", str(packed.parent), f"{package}=={version}"]
        subprocess.run(pip, check=True, timeout=SUITE_S)
    half = place / "sources" / f"unpacking-{stem}"
    shutil.rmtree(half, ignore_errors=True)
    with tarfile.open(packed) as archive:
        archive.extractall(half, filter="data")
    (half / stem).rename(folder)
    return folder


class Clients:
    """Checks of ours through real clients (`tools/clients`), each of which starts a server of its own."""

    fast = False

    def __init__(self, name, package, version, command):
        self.name, self.package, self.version, self.command = name, package, version, command

    def run(self, server, place):
        command = [word.format(python=sys.executable, place=place) for word in self.command]
        folder = HERE.parent / "clients"
        done = subprocess.run(
            [command[0], folder / command[1], server.binary, *command[2:]], capture_output=True, text=True, timeout=SUITE_S
        )
        (place / f"{self.name}.log").write_text(done.stdout + done.stderr)
        lines = [line.split(None, 1) for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
        return {what: ("passed", "") if how == "ok" else ("failed", "see the log") for how, what in lines}


class Schemathesis:
    """Requests made of the description of our own API; each operation is a test."""

    name, package, version, fast = "schemathesis", "schemathesis", "4.32.5", True
    # Left out: the network, a socket, a stream without an end, and the names that the rest needs.
    LEFT_OUT = "/api/(pull|create|copy|delete)|realtime|/streams/feed|/heartbeats/|/loading/progress"
    CHECKS = (
        "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
        "response_schema_conformance"
    )

    def run(self, server, place):
        report = place / f"{self.name}.xml"
        report.unlink(missing_ok=True)
        command = [pathlib.Path(sys.executable).with_name("schemathesis"), "--config-file", HERE / "schemathesis.toml"]
        command += ["run", f"{server.url}/openapi.json", "--phases=examples,coverage,fuzzing", "--max-examples=3", "--mode=all"]
        command += ["--seed=1", "--generation-deterministic", "--no-shrink", "--continue-on-failure", "--no-color"]
        command += [f"--checks={self.CHECKS}", "--exclude-path-regex", self.LEFT_OUT, "--request-timeout=60"]
        command += ["--report=junit", f"--report-junit-path={report}"]
        with open(place / f"{self.name}.log", "wb") as log:
            subprocess.run(command, cwd=place, stdout=log, stderr=log, timeout=SUITE_S)
        if not report.exists():
            raise RuntimeError(f"{self.name} gave no report; see {place / self.name}.log")
        return {name.split("::", 1)[1]: how for name, how in told(report)}


TESTS = "tests/api_resources/"
ALL = [
    Pytest("openai", "openai", "3.52.0", [TESTS + path for path in OPENAI], base="/v1", fast=True, made_up=True),
    Pytest(
        "anthropic",
        "anthropic",
        "2.11.0",
        [TESTS + path for path in ANTHROPIC],
        fast=True,
        options=["-p", "tests._alias_httpx"],
    ),
    Pytest(
        "langchain",
        "langchain-tests",
        "1.1.9",
        ["test_langchain.py"],
        folder=None,
        options=["-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session"],
    ),
    Pytest(
        "llama.cpp",
        "llama-cpp-python",
        "0.3.36",
        [f"unit/test_{path}.py" for path in LLAMA],
        folder="vendor/llama.cpp/tools/server/tests",
    ),
    Pytest("open-responses", "openresponses-types", "2.4.0", ["test_open_responses.py"], folder=None, fast=True, sees=True),
    Pytest("http-lint", "httplint", "2026.10.4", ["test_http_lint.py"], folder=None, fast=True),
    Pytest("http-requests", "RFC 9110, RFC 9112", "", ["test_http_requests.py"], folder=None, fast=True),
    Pytest("websocket-frames", "RFC 6455", "", ["test_websocket_frames.py"], folder=None, fast=True),
    Clients("durable-streams", "@durable-streams/client (npm)", "0.2.7", ["node", "durable_streams_suite.mjs", "{place}/node"]),
    Clients("ollama", "ollama", "0.6.3", ["{python}", "ollama_suite.py"]),
    Clients("ollama-js", "ollama (npm)", "0.6.4", ["node", "ollama_suite.mjs", "{place}/node"]),
    Clients(
        "recipes",
        "docs/clients.md",
        "",
        ["{place}/recipes/bin/python", "recipes_suite.py", "{place}/aider/bin/aider", "{place}/recipes-node"],
    ),
    Schemathesis(),
]
