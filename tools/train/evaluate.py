#!/usr/bin/env python3
"""Questions with known answers for any server of OpenAI's chat API, with the official client.

    evaluate.py CASES.jsonl [--url http://127.0.0.1:8420/v1] [--model NAME] [--clients 4] [--show 10]

The key is that of `MILLRACE_API_KEY`. The format of a case is in docs/built-in-model.md. Needs `pip install openai`.
"""
import argparse
import collections
import concurrent.futures
import json
import os

import openai

CHECKS = {"equals", "equals_any", "contains", "at_least", "tool_call", "calls", "reasoning"}


def read_cases(path):
    """The cases of a file; an unknown check is an error, as it would never fail."""
    with open(path, encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines if line.strip()]
    for number, case in enumerate(cases, 1):
        unknown = case["check"].keys() - CHECKS
        if unknown or not case["check"]:
            raise ValueError(f"case {number}: check {sorted(unknown) or 'is empty'}")
    return cases


def why_wrong(check, text, reasoning, calls):
    """The first condition that an answer does not meet; None: the answer is right. `calls`: [(name, arguments)]."""
    text = text.strip()
    wanted = [one.strip() for one in [*check.get("equals_any", []), *([check["equals"]] if "equals" in check else [])]]
    if wanted and text not in wanted:
        return f"wanted {wanted}"
    missing = [word for word in check.get("contains", []) if word.lower() not in text.lower()]
    if missing:
        return f"{missing} not in it"
    if len(text) < check.get("at_least", 0):
        return f"shorter than {check['at_least']} characters"
    # A call that stands in the text was not recognized.
    if "calls" in check and check["calls"] != bool(calls or (not check["calls"] and "<tool_call>" in text)):
        return "no call" if check["calls"] else "unexpected call"
    if (call := check.get("tool_call")) and calls != [(call["name"], call["arguments"])]:
        return f"wanted {call}"
    if "reasoning" in check and check["reasoning"] != bool(reasoning.strip() or (not check["reasoning"] and "<think>" in text)):
        return "no reasoning" if check["reasoning"] else "unexpected reasoning"
    return None


def ask(client, model, case):
    """Why the answer to a case is wrong, with the answer; None: it is right."""
    request = {"model": model, "temperature": 0, "max_tokens": 512} | case["request"]
    known = {"model", "messages", "temperature", "max_tokens", "tools"}
    more = {name: value for name, value in request.items() if name not in known}
    try:
        answer = client.chat.completions.create(**{name: request[name] for name in request.keys() & known}, extra_body=more)
    except openai.OpenAIError as error:
        return f"no answer: {error}"
    message = answer.choices[0].message
    reasoning = getattr(message, "reasoning_content", None) or ""
    try:
        calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []]
    except ValueError:
        return f"arguments are not JSON: {message.tool_calls}"
    why = why_wrong(case["check"], message.content or "", reasoning, calls)
    return why and f"{message.content!r} {calls or ''}: {why}"


def evaluate(client, model, cases, clients=4):
    """For each case why its answer is wrong, or None."""
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda case: ask(client, model, case), cases))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases")
    parser.add_argument("--url", default="http://127.0.0.1:8420/v1")
    parser.add_argument("--model", help="default: the server's first")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--show", type=int, default=10, help="wrong answers to show")
    options = parser.parse_args()
    client = openai.OpenAI(base_url=options.url, api_key=os.environ.get("MILLRACE_API_KEY") or "none")
    cases = read_cases(options.cases)
    outcomes = evaluate(client, options.model or next(iter(client.models.list())).id, cases, options.clients)
    rows = collections.defaultdict(list)
    for case, why in zip(cases, outcomes):
        rows[case["skill"]].append(why is None)
    print("| skill | cases | right | share |\n|---|---|---|---|")
    for skill, right in [*sorted(rows.items()), ("all", [why is None for why in outcomes])]:
        print(f"| {skill} | {len(right)} | {sum(right)} | {sum(right) / len(right):.1%} |")
    wrong = [(case, why) for case, why in zip(cases, outcomes) if why]
    for case, why in wrong[: options.show]:
        print(f"{case['skill']}: {case['request']['messages'][-1].get('content')!r}\n    {why}")


if __name__ == "__main__":
    main()
