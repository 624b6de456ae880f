#!/usr/bin/env python3
"""Load tools of other projects (aiperf, guidellm, SGLang's bench_serving) against Millrace and llama.cpp's server, in turn.

    TOOLS/aiperf/bin/python load_tools.py --tools TOOLS --model FILE --millrace BINARY --llama-server BINARY
    TOOLS/aiperf/bin/python load_tools.py --tools TOOLS --model FILE --url http://127.0.0.1:8420

measurements/load-tools.md says how TOOLS is made. Each tool sends the same number of prompts of the same length to both servers, from
as many clients, and asks for answers of one length. The figures are the tool's own.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import urllib.request

import tokenizer
from servers import LlamaServer, Millrace

WORDS = "the and of in to other one on there then re in line seen tore land store rest head order letters written on stone".split()
CORPUS, CORPUS_WORDS = 64, 400
ROW = ("completed", "tokens/s", "first token p50", "first token p99", "between tokens p50", "between tokens p99")


def aiperf(args, url, name, vocabulary, folder):
    run(args, folder, "aiperf/bin/aiperf", "profile", "--model", name, "--url", url, "--endpoint-type", "completions", "--streaming",
        "--tokenizer", vocabulary, "--use-server-token-count", "--isl", args.prompt, "--isl-stddev", 0, "--osl", args.gen,
        "--osl-stddev", 0, "--extra-inputs", "ignore_eos:true", "--concurrency", args.clients, "--request-count", args.requests,
        "--random-seed", args.seed, "--no-server-metrics", "--no-gpu-telemetry", "--ui", "none", "--artifact-dir", folder)
    found = json.loads((folder / "profile_export_aiperf.json").read_text())
    times = [found[key][part] for key in ("time_to_first_token", "inter_token_latency") for part in ("p50", "p99")]
    return [found["request_count"]["avg"], found["output_token_throughput"]["avg"], *times]


def guidellm(args, url, name, vocabulary, folder):
    out = folder / "guidellm.json"
    run(args, folder, "guidellm/bin/guidellm", "run", "--disable-console", "--seed", f"kind=static,value={args.seed}",
        "--backend", f"kind=openai_http,target={url},model={name},request_format=/v1/completions",
        "--profile", f"kind=concurrent,streams={args.clients}", "--constraint", f"kind=max_requests,count={args.requests}",
        "--data", f"kind=synthetic_text,prompt_tokens={args.prompt},output_tokens={args.gen}",
        "--tokenizer", f"kind=hf_auto,model={vocabulary}", "--output", f"kind=json,path={out}")
    found = json.loads(out.read_text())["benchmarks"][0]["metrics"]
    of = lambda key: found[key]["successful"]
    times = [of(key)["percentiles"][part] for key in ("time_to_first_token_ms", "inter_token_latency_ms") for part in ("p50", "p99")]
    return [found["request_totals"]["successful"], of("output_tokens_per_second")["mean"], *times]


def bench_serving(args, url, name, vocabulary, folder):
    script = next((args.tools / "sglang").glob("lib/python*/site-packages/sglang/bench_serving.py"))
    out = folder / "bench_serving.jsonl"
    run(args, folder, "sglang/bin/python", script, "--backend", "vllm", "--base-url", url, "--model", name, "--tokenizer", vocabulary,
        "--dataset-name", "random", "--dataset-path", corpus(folder), "--random-input-len", args.prompt, "--random-output-len", args.gen,
        "--random-range-ratio", 1, "--num-prompts", args.requests, "--max-concurrency", args.clients, "--warmup-requests", 0,
        "--seed", args.seed, "--disable-tqdm", "--output-file", out)
    found = json.loads(out.read_text().splitlines()[-1])
    times = [found[f"{part}_{key}_ms"] for key in ("ttft", "itl") for part in ("median", "p99")]
    return [found["completed"], found["output_throughput"], *times]


TOOLS = {"aiperf": aiperf, "guidellm": guidellm, "bench_serving": bench_serving}


def corpus(folder):
    """Conversations in ShareGPT's form, from which bench_serving cuts its prompts: no download."""
    chance = random.Random(1)
    text = lambda: " ".join(chance.choices(WORDS, k=CORPUS_WORDS))
    path = folder / "corpus.json"
    path.write_text(json.dumps([{"conversations": [{"value": text()}, {"value": text()}]} for _ in range(CORPUS)]))
    return path


def run(args, folder, program, *words):
    """One run of a tool with its output in a log; an error shows the end of the log."""
    command = [str(args.tools / program), *map(str, words)]
    print("$ " + " ".join(command), file=sys.stderr, flush=True)
    # aiperf takes a folder for a name of the hub when it is told to be offline.
    offline = {} if program.startswith("aiperf") else {"HF_HUB_OFFLINE": "1"}
    variables = os.environ | offline | {"HF_HOME": str(folder / "hub")}
    log = folder / "log.txt"
    with open(log, "w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=variables, cwd=folder, timeout=args.limit)
    if done.returncode:
        raise RuntimeError(f"{program}: status {done.returncode}\n{log.read_text()[-2000:]}")


def model_of(url):
    """The name of the model as the server has it."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as reply:
        return json.load(reply)["data"][0]["id"]


def warm(url, name):
    """One request before the load: what is made at the first one is not measured."""
    body = json.dumps({"model": name, "prompt": "the other", "max_tokens": 2}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        reply.read()


def started(args, stack):
    """The servers' addresses by their names."""
    if args.url:
        return {"server": args.url}
    args.out.mkdir(parents=True, exist_ok=True)
    positions = args.prompt + args.gen + args.margin
    found = {}
    if args.millrace:
        server = Millrace(args.millrace, args.model, args.threads, args.clients, args.out / "millrace.log", ())
        stack.callback(server.stop)
        found["Millrace"] = server.url
    if args.llama_server:
        server = LlamaServer(args.llama_server, args.model, args.threads, args.clients, positions, args.out / "llama-server.log")
        stack.callback(server.stop)
        found["llama-server"] = server.url
    return found


def measure(args, urls):
    vocabulary = args.out / "tokenizer"
    tokenizer.write(args.model, vocabulary)
    names = {side: model_of(url) for side, url in urls.items()}
    for side, url in urls.items():
        warm(url, names[side])
    print("| tool | server | " + " | ".join(ROW) + " |\n|---|---|" + "---|" * len(ROW), flush=True)
    for tool in args.only:
        for round in range(args.rounds):
            args.seed = round + 1  # other prompts in each round: none is in a prompt cache
            for side, url in urls.items():
                folder = args.out / f"{tool}-{side}-{round}"
                folder.mkdir(parents=True, exist_ok=True)
                figures = TOOLS[tool](args, url, names[side], vocabulary, folder)
                print(f"| {tool} | {side} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    path = lambda text: pathlib.Path(text).resolve()
    parser.add_argument("--tools", type=path, required=True, help="folder of the environments aiperf, guidellm and sglang")
    parser.add_argument("--model", type=path, required=True, help="GGUF file that the servers have, with a byte-level vocabulary")
    parser.add_argument("--millrace", type=path, help="our release binary: start it")
    parser.add_argument("--llama-server", type=path, help="llama.cpp's server: start it")
    parser.add_argument("--url", help="a server that runs, in place of both")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(TOOLS), help=",".join(TOOLS))
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--gen", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--margin", type=int, default=96, help="positions of a sequence beyond these: tools miss the length of a prompt")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600, help="seconds of one run of a tool")
    parser.add_argument("--out", type=path, default=path("load-tools"), help="folder for reports and logs")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        measure(args, started(args, stack))


if __name__ == "__main__":
    main()
