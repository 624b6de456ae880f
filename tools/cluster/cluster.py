"""Faults in a cluster of real processes, and what clients see of them.

    python cluster.py MILLRACE FOLDER [--short] [--streams 200] [--tokens 400] [--rows gateway,NATS] [--nats PROGRAM ...]

Starts three NATS servers, three gateways, three engines and nginx by deploy/cluster.sh, and prints a table. All answers
are greedy or have seeds: each is compared with that of one process that nothing happened to. Exit status 1 if a row failed.
Nothing here depends on how fast the machine is.
"""

import argparse
import asyncio
import pathlib
import signal
import subprocess
import sys
import time
import traceback

import faults  # registers its rows, as the next ones do
import nats_faults  # noqa: F401
import partitions  # noqa: F401
import proxy_rules  # noqa: F401
import rolling  # noqa: F401
from processes import Alone, Cluster, has_nginx
from rows import ROWS, Bench
from streams import Question, Streams

# A row that takes longer hangs: with 200 streams one takes a minute or two.
ROW_S_MAX = 900


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--short", action="store_true", help="fewer and shorter streams, the main rows")
    parser.add_argument("--streams", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--rows", default="", help="parts of names of rows")
    parser.add_argument("--nats", nargs="*", default=["nats-server"], help="programs")
    asked = parser.parse_args()
    asked.streams = asked.streams or (16 if asked.short else 200)
    # Few streams must still run when the fault comes.
    asked.tokens = asked.tokens or (1500 if asked.short else 400)
    asked.gateways = 2 if asked.short else 3
    return asked


def version_of(program):
    """Version of a NATS server, such as `2.9.10`."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return told.strip().rpartition("v")[2]


def wanted(asked, has_faketime):
    """The rows to run, and the names of those that are left out."""
    parts = [part for part in asked.rows.split(",") if part]
    rows, left_out = [], []
    for name, function, short in ROWS:
        if parts and not any(part in name for part in parts) or not parts and asked.short and not short:
            continue
        if "clocks" in name and not has_faketime:
            left_out.append(f"{name}: there is no {faults.FAKETIME}")
        elif "nginx" in name and not has_nginx():
            left_out.append(f"{name}: nginx is not installed")
        else:
            rows.append((name, function))
    return rows, left_out


async def undisturbed(asked, questions):
    """The texts of one process."""
    alone = Alone(asked.millrace)
    try:
        await alone.ready()
        streams = Streams(questions, dict.fromkeys(questions, ""))
        await streams.open_openai([alone.url]).finish()
        assert not streams.broken(), streams.broken()[0].error
        assert all(r.finish == "length" for r in streams.received)
        return {r.question: r.text for r in streams.received}
    finally:
        alone.stop()


async def run_row(bench, name, function):
    """One fault in a cluster that is whole."""
    begin = time.monotonic()
    try:
        await bench.cluster.whole()
        seen, problems = await asyncio.wait_for(function(bench), ROW_S_MAX)
    except Exception:
        seen, problems = "the row did not run to its end", [traceback.format_exc()]
    print(f"{'FAIL' if problems else 'ok  '}  {name} ({time.monotonic() - begin:.0f} s): {seen}", flush=True)
    for problem in problems:
        print(f"      {problem}", flush=True)
    return name, seen, not problems


async def run(asked):
    rows, left_out = wanted(asked, pathlib.Path(faults.FAKETIME).exists())
    questions = [Question(number, asked.tokens) for number in range(asked.streams)]
    expected = await undisturbed(asked, questions)
    print(f"{len(questions)} streams of {asked.tokens} tokens", flush=True)
    table = []
    for program in asked.nats:
        cluster = Cluster(asked.millrace, program, asked.folder / "state", gateways=asked.gateways)
        bench = Bench(cluster, questions, expected, outage_s=5 if asked.short else 30)
        try:
            version = version_of(program)
            print(f"-- NATS {version}: {program}", flush=True)
            for name, function in rows:
                table.append((version, *await run_row(bench, name, function)))
        finally:
            cluster.end()
    return table, left_out


def main():
    asked = arguments()
    # The cluster is ended however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table, left_out = asyncio.run(run(asked))
    print("\n| NATS | fault | clients saw | |\n|---|---|---|---|")
    for version, name, seen, is_good in table:
        print(f"| {version} | {name} | {seen} | {'pass' if is_good else '**FAIL**'} |")
    for what in left_out:
        print(f"SKIPPED: {what}")
    sys.exit(0 if all(is_good for *_, is_good in table) else 1)


if __name__ == "__main__":
    main()
