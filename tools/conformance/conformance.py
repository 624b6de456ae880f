"""Other people's suites, unmodified, against the server; what they say is set beside what is known.

    python conformance.py BINARY PLACE [SUITE...] [--fast] [--write docs/conformance.md]

PLACE keeps sources, reports and logs between runs. Ends with 1 if a test fails that `known.toml` does not name, or one
passes that it does.
"""

import argparse
import concurrent.futures
import fnmatch
import pathlib
import sys
import tempfile
import time
import tomllib

import suites
import table
from server import Server

KNOWN = pathlib.Path(__file__).with_name("known.toml")

# Suites that run at once, each with a server of its own.
LANES = 2


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("binary")
    arguments.add_argument("place", type=pathlib.Path)
    arguments.add_argument("names", nargs="*", metavar="suite")
    arguments.add_argument("--fast", action="store_true", help="only what takes seconds")
    arguments.add_argument("--write", type=pathlib.Path, help="where the table goes, if all suites ran")
    given = arguments.parse_args()
    there = {suite.name for suite in suites.ALL}
    if unknown := set(given.names) - there:
        sys.exit(f"no such suite: {', '.join(unknown)}; there are {', '.join(sorted(there))}")
    given.place.mkdir(parents=True, exist_ok=True)
    (given.place / "sources").mkdir(exist_ok=True)
    known = tomllib.loads(KNOWN.read_text())
    wanted = [s for s in suites.ALL if (not given.names or s.name in given.names) and (s.fast or not given.fast)]
    with concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
        running = {suite.name: lanes.submit(result, suite, known.get(suite.name, []), given) for suite in slow_first(wanted)}
        results = {suite.name: running[suite.name].result() for suite in wanted}
    if given.write and len(wanted) == len(suites.ALL):
        given.write.write_text(table.page(suites.ALL, results))
    surprises = sum(len(result.surprises) for result in results.values())
    sys.exit(f"{surprises} surprises" if surprises else 0)


def slow_first(wanted):
    """The longest suite would otherwise run alone at the end."""
    return sorted(wanted, key=lambda suite: suite.name != "schemathesis")


def result(suite, known, given):
    """Runs one suite against a server of its own."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(given.binary, pathlib.Path(folder), getattr(suite, "sees", False))
        try:
            tests = suite.run(server, given.place)
        finally:
            clean = server.stop()
    if not clean:
        tests["the server stops cleanly"] = ("failed", "it did not")
    result = Result(tests, known)
    head = f"{suite.name}: {result.line()} in {time.monotonic() - begun:.0f} s"
    print("\n  ".join([head, *result.surprises]), flush=True)
    return result


class Result:
    """What became of a suite's tests, each beside what is known of it."""

    def __init__(self, tests, known):
        names = {kind: [name for name, (how, _) in tests.items() if how == kind] for kind in ("passed", "skipped", "failed")}
        self.passed, self.skipped, self.failed = names["passed"], names["skipped"], names["failed"]
        self.rows = []
        explained, self.surprises = set(), []
        for row in known:
            mine = [name for name in tests if any(fnmatch.fnmatchcase(name, p) for p in map(literal, row["tests"]))]
            mine = [name for name in mine if name not in explained]
            explained.update(mine)
            failed = [name for name in mine if name in set(self.failed)]
            if not row.get("model"):
                passed = [name for name in mine if name in set(self.passed)]
                self.surprises += [f"passes, although it is known to fail: {name}" for name in passed]
                if not failed:
                    self.surprises.append(f"nothing fails that is known as: {row['why']}")
            self.rows.append((len(failed), len(mine), row))
        new = [name for name in self.failed if name not in explained]
        self.surprises += [f"fails: {name}: {tests[name][1][:400]}" for name in new]
        if not self.passed:
            self.surprises.append("nothing passes")

    def line(self):
        return f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped, {len(self.surprises)} surprises"


def literal(pattern):
    """Only `*` stands for anything: names of tests have brackets."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


if __name__ == "__main__":
    main()
