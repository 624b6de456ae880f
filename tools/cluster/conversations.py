"""Clients that hold conversations: system prompts that many share, and turns that repeat what was said before."""

import asyncio
import dataclasses
import json
import random
import time

import httpx2 as httpx

WORDS = "river mill wheel stone grain water field barn cart road bridge winter summer market bread flour horse miller".split()
SYSTEM_PROMPTS = 8
SYSTEM_WORDS = 400
MESSAGE_WORDS = (10, 40)
TURNS = (3, 8)
ANSWER_TOKENS = 16
# A reader's time between an answer and the next message.
THINKING_S = 0.5


def words_of(seed, count):
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))


@dataclasses.dataclass
class Turn:
    first_token_s: float
    prompt_tokens: int
    cached_tokens: int


async def hold(client, urls, number):
    """One conversation; each turn goes to another gateway. The same number says the same."""
    chosen, turns = random.Random(number), []
    system = f"You are helper {number % SYSTEM_PROMPTS}. {words_of(-1 - number % SYSTEM_PROMPTS, SYSTEM_WORDS)}"
    messages = [{"role": "system", "content": system}]
    for turn in range(chosen.randint(*TURNS)):
        messages.append({"role": "user", "content": words_of(f"{number}/{turn}", chosen.randint(*MESSAGE_WORDS))})
        turns.append(await ask(client, chosen.choice(urls), messages))
        # What the model said is of no use here: the next prompt must be the same with every policy.
        messages.append({"role": "assistant", "content": words_of(f"{number}/{turn}/answer", ANSWER_TOKENS)})
        await asyncio.sleep(THINKING_S)
    return turns


async def ask(client, url, messages):
    body = {"messages": messages, "max_tokens": ANSWER_TOKENS, "ignore_eos": True, "temperature": 0, "stream": True}
    body |= {"stream_options": {"include_usage": True}}
    begin, first, usage = time.monotonic(), None, None
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            if first is None and any(choice["delta"].get("content") for choice in event["choices"]):
                first = time.monotonic() - begin
            usage = event.get("usage") or usage
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Turn(first or time.monotonic() - begin, usage["prompt_tokens"], cached)


async def hold_all(urls, clients, conversations):
    """All conversations, `clients` of them at a time; their turns."""
    numbers, turns = iter(range(conversations)), []

    async def one_client(client):
        for number in numbers:
            turns.extend(await hold(client, urls, number))

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=900, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(one_client(client) for _ in range(clients)))
    return turns
