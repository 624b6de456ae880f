"""Autobahn's suite of WebSocket cases, unmodified, against a server that sends each message back.

    python autobahn.py ECHO ROOT PLACE measurements/autobahn.md

ECHO is the example `websocket_echo` of the crate `server`, ROOT a root of Debian with Python 2.7 and `autobahntestsuite`, PLACE
keeps the log and the report. Ends with 1 if a case fails that `known.toml` does not name, or one passes that it does.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

from conformance import KNOWN, Result
from table import count, names

VERSION = "25.10.1"
# The suite waits a second where it expects silence; large messages are slow in a debug build.
SUITE_S = 1800
PASSED, PASSED_CLOSE = {"OK", "NON-STRICT", "INFORMATIONAL"}, {"OK", "INFORMATIONAL"}
# Prints the numbers and titles of cases, in the root.
TITLES = """
import json
from autobahntestsuite.case import CaseCategories, CaseSubCategories
print(json.dumps([CaseCategories, CaseSubCategories]))
"""
HEAD = """# Autobahn's WebSocket cases

Written by `cargo xtask conformance autobahn`, which runs the fuzzing client of `autobahntestsuite` {version} as its authors published it.
The command fails if a case fails that is not listed below, or if a listed one passes (`tools/conformance/known.toml`).

Almost every case expects its message back, and Millrace's WebSocket (`/v1/realtime/streams`) answers JSON with JSON. So the suite runs against
`crates/server/examples/websocket_echo.rs`: the session of that endpoint (`realtime/session.rs`, with its library, limits, rate of pings, order of reading and
writing, and close codes), compiled with a handler that sends text messages back. The opening handshake, API keys and the commands are not in it:
`websocket-frames` in [the other suites](../docs/conformance.md) sends its own frames of the same kinds to the endpoint itself.

Strict: as the suite expects. Lax: allowed by RFC 6455, but not the best (NON-STRICT), or left open by it (INFORMATIONAL).
Skipped: the case concerns an extension that is not negotiated (compression).

| cases | | strict | lax | failed, for a reason below | skipped |
|---|---|---|---|---|---|
"""
FOOT = """
## How it is run

The suite needs Python 2.7. The command makes a root of Debian bullseye in `target/autobahn-root` (or `MILLRACE_AUTOBAHN_ROOT`; 500 MB, with `debootstrap`, as root), and installs the suite
from PyPI there; without them it says SKIPPED. The server and the suite talk over loopback.
"""


def main():
    echo, root, place, page = map(pathlib.Path, sys.argv[1:])
    inside = ["chroot", root, "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root"]
    titles = json.loads(subprocess.run([*inside, "python2.7", "-c", TITLES], capture_output=True, check=True).stdout)
    reports = cases(echo, root, inside, place)
    outcomes = {number: outcome(report) for number, report in reports.items()}
    result = Result(outcomes, tomllib.loads(KNOWN.read_text()).get("autobahn", []))
    print("\n  ".join([f"autobahn: {result.line()}", *result.surprises]), flush=True)
    page.write_text(HEAD.format(version=VERSION) + table(reports, outcomes, *titles) + reasons(result) + FOOT)
    sys.exit(f"{len(result.surprises)} surprises" if result.surprises else 0)


def cases(echo, root, inside, place):
    """What the suite reports of each case, by number."""
    server = subprocess.Popen([echo], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        agent = {"agent": "millrace", "url": url}
        spec = {"outdir": "/tmp/reports", "servers": [agent], "cases": ["*"], "exclude-cases": [], "exclude-agent-cases": {}}
        (root / "tmp/spec.json").write_text(json.dumps(spec))
        (root / "tmp/reports/index.json").unlink(missing_ok=True)
        suite = [*inside, "wstest", "-m", "fuzzingclient", "-s", "/tmp/spec.json"]
        with open(place / "autobahn.log", "wb") as log:
            subprocess.run(suite, stdout=log, stderr=log, timeout=SUITE_S, check=True)
        assert server.poll() is None, "the server ended"
    finally:
        server.kill()
        server.wait()
    reports = json.loads((root / "tmp/reports/index.json").read_text())["millrace"]
    return {number: reports[number] for number in sorted(reports, key=lambda number: [int(part) for part in number.split(".")])}


def outcome(report):
    """As the other suites tell of a test."""
    how = (report["behavior"], report["behaviorClose"])
    if how[0] == "UNIMPLEMENTED":
        return "skipped", ""
    passes = how[0] in PASSED and how[1] in PASSED_CLOSE
    return ("passed", "") if passes else ("failed", f"{how[0]}, close {how[1]}")


def group(number, subcategories):
    """The group of a case: of two numbers where the suite has a title for them, else of one."""
    parts = number.split(".")
    two = ".".join(parts[:2])
    return two if two in subcategories else parts[0]


def table(reports, outcomes, categories, subcategories):
    groups = {}
    for number in reports:
        groups.setdefault(group(number, subcategories), []).append(number)
    rows = []
    for name, numbers in groups.items():
        title = categories[name.split(".")[0]]
        if name in subcategories:
            # Without the parameters of compression, which follow a dash.
            title += f": {subcategories[name].split(' - ')[0]}"
        strict = sum(outcomes[n][0] == "passed" and reports[n]["behavior"] == "OK" for n in numbers)
        counts = [sum(outcomes[n][0] == how for n in numbers) for how in ("passed", "failed", "skipped")]
        rows.append(f"| {name} | {' '.join(title.split())} | {strict} | {counts[0] - strict} | {counts[1]} | {counts[2]} |\n")
    totals = [sum(how == kind for how, _ in outcomes.values()) for kind in ("passed", "failed", "skipped")]
    strict = sum(outcomes[n][0] == "passed" and reports[n]["behavior"] == "OK" for n in reports)
    return "".join(rows) + f"| | all | {strict} | {totals[0] - strict} | {totals[1]} | {totals[2]} |\n"


def reasons(result):
    told = [row for row in result.rows if row[1]]
    head = "\n## Failures\n\n| cases | failed | reason |\n|---|---|---|\n"
    return head + "".join(f"| {names(row)} | {count(failed, of, row)} | {row['why']} |\n" for failed, of, row in told)


if __name__ == "__main__":
    main()
