#!/usr/bin/env python3
"""Ours beside llama.cpp and candle on the same synthetic models, round by round in turn.

A figure holds for the run it was made in: machines drift. Medians over the rounds are printed, and
beside each the rate at which this machine's measured limits (read bandwidth, arithmetic) would
allow no more. `cargo xtask rivals` builds what this needs and calls it.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import statistics
import subprocess

SHAPES = {
    "1b": "llama-1b",
    "0.6b": "qwen3-0.6b",
    "gpt-oss-20b": "gpt-oss-20b-slice",
    "qwen3-30b-a3b": "qwen3-30b-a3b-slice",
    "qwen3.5-0.8b": "qwen3.5-0.8b",
    "qwen3.5-35b-a3b": "qwen3.5-35b-a3b-slice",
    "gemma4-e2b": "gemma4-e2b",
    "gemma4-26b-a4b": "gemma4-26b-a4b-slice",
}
PROMPT, STEPS = 512, 16
LONG_PROMPT = 32768
# Regime: kind, sequences, positions before; of a prefill, the prompt's tokens.
MODEL = {
    "prefill": ("prefill", 1, PROMPT),
    "prefill32768": ("prefill", 1, LONG_PROMPT),
    "decode1": ("decode", 1, 0),
    "decode8": ("decode", 8, 0),
    "decode32": ("decode", 32, 0),
    "ctx4096": ("decode", 1, 4096),
    "ctx16384": ("decode", 1, 16384),
    "ctx65536": ("decode", 1, 65536),
    "ctx16384x8": ("decode", 8, 16384),
    "ctx65536x8": ("decode", 8, 65536),
}
PLAIN_MAX = 16384  # positions up to which llama.cpp is measured without flash attention, too
DEPTH = 64  # positions before decoding begins in the regimes without any
MEMORY = ("load", "memory")
# Regime: clients, requests, prompt, tokens.
SERVING = {"serve1": (1, 4, 128, 64), "serve8": (8, 8, 128, 64), "serve32": (32, 32, 128, 32)}
LAYER = (64, 128, 32, 64)
POSITIONS = 256  # of each sequence in a server
REGIMES = (*MODEL, *MEMORY, *SERVING, "layer")
CANDLE = {"prefill": "prefill", "decode1": "decode"}


class Table:
    """Figures of every row and side, and the machine's limit on the row."""

    def __init__(self):
        self.rows = collections.OrderedDict()
        self.machine = []

    def add(self, row, unit, side, figure, limit=None):
        entry = self.rows.setdefault(row, {"unit": unit, "sides": {}, "limits": []})
        entry["sides"].setdefault(side, []).append(figure)
        if limit is not None:
            entry["limits"].append(limit)

    def lines(self):
        rivals = sorted({side for row in self.rows.values() for side in row["sides"]} - {"ours"})
        yield ["row", "unit", "ours"] + [cell for r in rivals for cell in (r, "ratio")] + ["limit"]
        for name, row in self.rows.items():
            middle = {side: statistics.median(all) for side, all in row["sides"].items()}
            ours = middle.get("ours")
            cells = [name, row["unit"], shown(ours)]
            for rival in rivals:
                theirs = middle.get(rival)
                cells.append(shown(theirs))
                cells.append(f"{ours / theirs:.2f}" if ours and theirs and theirs > 0 else "-")
            limit = statistics.median(row["limits"]) if row["limits"] else None
            cells.append(f"{shown(limit)} ({100 * ours / limit:.0f}%)" if limit and ours else "-")
            yield cells

    def show(self):
        for line in self.machine:
            print(line)
        lines = list(self.lines())
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        for i, line in enumerate(lines):
            print("| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths)) + " |")
            if i == 0:
                print("|" + "|".join("-" * (w + 2) for w in widths) + "|")


def shown(figure):
    return "-" if figure is None else f"{figure:.1f}" if abs(figure) < 1000 else f"{figure:.0f}"


def ours(args, model, tests):
    """`millrace bench model --json` for the tests; their rows by (kind, batch, context)."""
    rows, report = {}, None
    for context in sorted({context for _, _, context in tests}):
        batches = [str(batch) for kind, batch, at in tests if kind == "decode" and at == context]
        prompts = context if ("prefill", 1, context) in tests else 0
        groups = [(prompts, None, 0)] if prompts else []
        groups += [(0, ",".join(batches), context or DEPTH)] if batches else []
        for prompt, batch, depth in groups:
            command = [args.millrace, "bench", "model", "--model", model, "--rounds", 1,
                       "--threads", args.threads, "--prompt", prompt, "--context", depth,
                       "--gen", STEPS if batch else 0, "--batch", batch or 1,
                       "--kv-mib", args.kv_mib, "--kv-type", args.kv_type, "--json"]
            report = json.loads(subprocess.run([str(word) for word in command], check=True,
                                               capture_output=True, text=True).stdout)
            for row in report["rows"]:
                kind = "prefill" if row["test"].startswith("prompt") else "decode"
                size = 1 if kind == "prefill" else int(row["test"].split()[3])
                rows[kind, size, context] = row
    return rows, report


def flash_choices(test):
    """Whether llama.cpp computes a test with flash attention: for one row after many positions it is slower, so both."""
    kind, batch, context = test
    both = kind == "decode" and batch == 1 and 0 < context <= PLAIN_MAX
    return (True, False) if both else (True,)


def position_bytes(report, model, args):
    """Bytes of keys and values for one position."""
    described = json.loads(subprocess.run([str(args.millrace), "inspect", str(model), "--json"],
                                          check=True, capture_output=True, text=True).stdout)
    meta = described["metadata"]
    get = lambda key: meta.get(f"{report['architecture']}.{key}")
    heads = get("attention.head_count")
    head = get("attention.key_length") or get("embedding_length") // heads
    return get("block_count") * (get("attention.head_count_kv") or heads) * head * 4


def candle(args, model):
    env = dict(os.environ, RAYON_NUM_THREADS=str(args.threads), CANDLE_NUM_THREADS=str(args.threads))
    command = [str(word) for word in (args.candle, model, PROMPT, STEPS, DEPTH)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        print(f"candle does not run {model.name}: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return json.loads(done.stdout)


def measure_llama(args, table, name, model, tests, side, report=None):
    """Rates of all tests, one context for each number of sequences; rows for regimes that were asked for. Of the first: milliseconds to the first token and,
    with our `report` of the model, bytes that are neither weights nor keys and values."""
    from llama import Library
    first = None
    for batch in sorted({batch for _, batch, _ in tests.values()}):
        chosen = {regime: test for regime, test in tests.items() if test[1] == batch}
        library = Library(model, args.threads, STEPS, list(chosen.values()), side == "llama.cpp", args.kv_type)
        try:
            for regime, test in chosen.items():
                rate = library.rate(*test)
                if regime in args.regimes:
                    table.add(f"{name} {regime}", "tok/s", side, rate)
            if report and not first:
                first = library.ready_ms, library.beyond_bytes(
                    report["weight_bytes"], position_bytes(report, model, args))
        finally:
            library.close()
    return first


def measure_model(args, table, name, model, regimes):
    """Rows of the forward pass, of loading and of memory."""
    tests = {regime: MODEL[regime] for regime in regimes if regime in MODEL}
    wanted = tests or {"decode1": MODEL["decode1"]}
    with_candle = args.candle and name.startswith("1b")
    for round in range(args.rounds):
        own, report = ours(args, model, list(wanted.values()))
        if round == 0:
            limits = report["limits"]
            table.machine.append(
                f"{name}: read {limits['read_small_pages'] / 1e9:.1f} / "
                f"{limits['read_large_pages'] / 1e9:.1f} GB/s (4 KiB / 2 MiB pages), f32 "
                f"{limits['f32_ops'] / 1e12:.2f} TFLOP/s, int8 {limits['int8_ops'] / 1e12:.2f} TOP/s")
        for regime, test in tests.items():
            row = own.get(test)
            if row is None:
                print(f"{name} {regime}: ours was skipped; the cache of a test may have {args.kv_mib} MiB (--kv-mib)")
                continue
            share = max(row["bandwidth_share"], row["peak_share"])
            table.add(f"{name} {regime}", "tok/s", "ours", row["tokens_per_s"],
                      row["tokens_per_s"] / share)
        # A cache in other types than f16 needs flash attention.
        plain = {} if args.kv_type != "f16" else {
            regime: test for regime, test in tests.items() if False in flash_choices(test)}
        measure_llama(args, table, name, model, plain, "llama.cpp, no flash")
        ready_ms, beyond = measure_llama(args, table, name, model, tests or wanted, "llama.cpp", report)
        if "load" in regimes:
            step = own.get(MODEL["decode1"]) or next(iter(own.values()))
            ours_ms = report["load_ms"] + 1e3 / step["tokens_per_s"]
            table.add(f"{name} load to first token", "ms", "ours", ours_ms)
            table.add(f"{name} load to first token", "ms", "llama.cpp", ready_ms)
        if "memory" in regimes:
            memory = report["memory"]
            ours_beyond = (memory["resident"] - memory["resident_before_load"] - report["weight_bytes"]
                           - memory["kv"])
            table.add(f"{name} beyond weights, KV", "MiB", "ours", ours_beyond / 2**20)
            table.add(f"{name} beyond weights, KV", "MiB", "llama.cpp", beyond / 2**20)
        if with_candle and any(regime in CANDLE for regime in tests):
            with_candle = rates = candle(args, model)
            for regime in tests:
                if rates and regime in CANDLE:
                    table.add(f"{name} {regime}", "tok/s", "candle", rates[CANDLE[regime]])


def measure_servers(args, table, name, model, regime):
    """One regime of load on both servers in turn."""
    from servers import LlamaServer, Millrace
    clients, requests, prompt, tokens = LAYER if regime == "layer" else SERVING[regime]
    load = ["--clients", clients, "--requests", requests, "--prompt", prompt, "--gen", tokens,
            "--warmup", 1, "--completions", "--ignore-eos"]
    logs = pathlib.Path(args.models)
    servers = {}
    try:
        servers["ours"] = Millrace(args.millrace, model, args.threads, clients, logs / "ours.log")
        servers["llama-server"] = LlamaServer(args.llama_server, model, args.threads, clients, POSITIONS,
                                              logs / "llama-server.log")
        for _ in range(args.rounds):
            for side, server in servers.items():
                report = server.load(args.millrace, load)
                add = lambda row, unit, figure: table.add(f"{name} {regime} {row}", unit, side, figure)
                add("rate", "tok/s", report["tokens_per_s"])
                add("first token p50", "ms", report["first_token_ms"]["p50"])
                add("first token p99", "ms", report["first_token_ms"]["p99"])
                add("between tokens p50", "ms", report["between_tokens_ms"]["p50"])
                add("between tokens p99", "ms", report["between_tokens_ms"]["p99"])
                add("CPU per token", "us", report["server_cpu_us_per_token"])
                add("client's CPU per token", "us", report["client_cpu_us_per_token"])
                add("resident", "MiB", report["server_resident_bytes"] / 2**20)
    finally:
        for server in servers.values():
            server.stop()


def synth(args, preset, format):
    """The model's file, written once."""
    path = pathlib.Path(args.models) / f"{preset}-{format}.gguf"
    if not path.exists():
        part = path.with_suffix(".gguf.tmp")
        subprocess.run([str(word) for word in (args.millrace, "synth", part, "--preset", preset,
                                               "--quant", format)], check=True)
        part.rename(path)
    return path


def choices(text, known):
    chosen = text.split(",")
    for one in chosen:
        if one not in known:
            raise argparse.ArgumentTypeError(f"{one!r} is none of {', '.join(known)}")
    return chosen


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millrace", required=True, help="our release binary")
    parser.add_argument("--models", required=True, help="folder for synthetic models and logs")
    parser.add_argument("--candle", help="tools/candle-bench, built")
    parser.add_argument("--llama-server", help="llama.cpp's server, for the regimes serve* and layer (llama_server.py builds it)")
    parser.add_argument("--shape", type=lambda text: choices(text, SHAPES), default=["1b"])
    parser.add_argument("--formats", type=str.upper, default="Q4_K_M,Q8_0")
    parser.add_argument("--regimes", type=lambda text: choices(text, REGIMES),
                        default=["prefill", "decode1", "decode8", "decode32", "load", "memory"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--kv-type", choices=["f16", "q8_0", "q4_0"], default="f16",
                        help="storage of keys and values, ours and llama.cpp's")
    parser.add_argument("--kv-mib", type=int, default=20480, help="most that our cache may have in one test")
    parser.add_argument("--models-only", action="store_true", help="write the models and stop")
    args = parser.parse_args()
    if not args.llama_server and not args.models_only and any(regime in (*SERVING, "layer") for regime in args.regimes):
        parser.error("the regimes serve* and layer need --llama-server")
    return args


def measure(args, table):
    for shape in args.shape:
        for format in args.formats.split(","):
            regimes = [regime for regime in args.regimes if regime != "layer"]
            if not regimes:
                continue
            model, name = synth(args, SHAPES[shape], format), f"{shape} {format}"
            if args.models_only:
                continue
            if any(regime in MODEL or regime in MEMORY for regime in regimes):
                measure_model(args, table, name, model, regimes)
            for regime in regimes:
                if regime in SERVING:
                    measure_servers(args, table, name, model, regime)
    if "layer" in args.regimes:
        model = synth(args, "server-layer", "Q8_0")
        if not args.models_only:
            measure_servers(args, table, "2 layers of 64", model, "layer")


def main():
    args, table = parse(), Table()
    # What was measured before somebody's patience ended is shown all the same.
    signal.signal(signal.SIGTERM, lambda *_: raise_exit())
    try:
        measure(args, table)
    finally:
        if table.rows:
            print(f"{args.threads} threads, medians of at most {args.rounds} rounds in turn")
            table.show()


def raise_exit():
    raise SystemExit("told to stop: rows may lack rounds")


if __name__ == "__main__":
    main()
