"""Faults in a cluster of real processes, and what clients see of them.

    python cluster.py MILLRACE FOLDER [--short] [--streams 200] [--tokens 400] [--rows gateway,nats] [--nats VERSION=PROGRAM ...]

Starts three NATS servers, two gateways, three engines and nginx by deploy/cluster.sh, and prints a table. All answers are
greedy or have seeds: each is compared with that of one process that nothing happened to. Exit status 1 if a row failed.
Nothing here depends on how fast the machine is.
"""

import argparse
import asyncio
import pathlib
import shutil
import sys
import time
import traceback

from faults import FAKETIME, ROWS, Bench
from processes import Alone, Cluster
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
    asked.streams = asked.streams or (24 if asked.short else 200)
    asked.tokens = asked.tokens or (800 if asked.short else 400)
    return asked


def wanted(asked, has_faketime):
    """The rows to run, and the names of those that are left out."""
    parts = [part for part in asked.rows.split(",") if part]
    rows, left_out = [], []
    for name, function, short in ROWS:
        if parts and not any(part in name for part in parts) or not parts and asked.short and not short:
            continue
        if "clocks" in name and not has_faketime:
            left_out.append(f"{name}: there is no {FAKETIME}")
        elif "nginx" in name and not shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"):
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
    rows, left_out = wanted(asked, pathlib.Path(FAKETIME).exists())
    questions = [Question(number, asked.tokens) for number in range(asked.streams)]
    expected = await undisturbed(asked, questions)
    print(f"{len(questions)} streams of {asked.tokens} tokens", flush=True)
    table, log = [], asked.folder
    for program in asked.nats:
        cluster = Cluster(asked.millrace, program, log / "state")
        bench = Bench(cluster, questions, expected, outage_s=5 if asked.short else 30)
        try:
            print(f"-- {program}", flush=True)
            for name, function in rows:
                table.append((program, *await run_row(bench, name, function)))
        finally:
            cluster.end()
    return table, left_out


def main():
    asked = arguments()
    table, left_out = asyncio.run(run(asked))
    print("\n| fault | clients saw | |\n|---|---|---|")
    for _, name, seen, is_good in table:
        print(f"| {name} | {seen} | {'pass' if is_good else '**FAIL**'} |")
    for what in left_out:
        print(f"SKIPPED: {what}")
    sys.exit(0 if all(is_good for *_, is_good in table) else 1)


if __name__ == "__main__":
    main()
