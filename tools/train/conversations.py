"""Conversations: skills mixed with system prompts, tools, thinking and one another."""

import random
from dataclasses import dataclass, field

import facts
import memory
import skills
import stories
import tools

PLAIN = (
    (skills.count, 12), (skills.spell, 7), (skills.reverse, 14), (skills.add, 20), (skills.subtract, 15), (skills.order, 7),
    (skills.calendar, 6), (skills.repeat, 4), (skills.again, 8), (stories.story, 8), (facts.about, 7), (facts.topic, 4),
    (facts.unknown, 4), (memory.nothing_told, 1),
)
SYSTEMS = ("You are a helpful assistant.", "You are helpful.", "Be brief.", "You are millrace-mini.", "You are a friendly assistant.",
           "Help the user.", "You are a helpful assistant that answers briefly.")


@dataclass
class Conversation:
    """What is rendered: a system prompt or none, tools or none, turns, and whether it thinks."""

    system: str | None = None
    tools: list = field(default_factory=list)
    turns: list = field(default_factory=list)
    thinking: bool = False


def plain(rng, held, only=None):
    """Turns of one skill."""
    made = only or rng.choices([skill for skill, _ in PLAIN], [weight for _, weight in PLAIN])[0]
    return made(rng, held)


def draw(rng, held=False):
    """One conversation."""
    made = Conversation(thinking=rng.random() < 0.22)
    kind = rng.random()
    if kind < 0.52:
        made.turns = plain(rng, held)
        if rng.random() < 0.15:
            made.system = rng.choice(SYSTEMS)
    elif kind < 0.60:
        made.turns = [t for _ in range(rng.randint(2, 7)) for t in plain(rng, held)]
    elif kind < 0.67:
        between = [t for _ in range(rng.choice((0, 0, 1, 2))) for t in plain(rng, held)]
        made.turns = memory.told_and_asked(rng, held, between)
    elif kind < 0.72:
        made.system, made.turns = memory.persona(rng, held)
        if rng.random() < 0.5:
            made.turns.insert(rng.randint(0, len(made.turns)), plain(rng, held, rng.choice((skills.spell, skills.add, skills.count)))[0])
    elif kind < 0.76:
        asks = rng.choice(memory.CAPITALS)
        if rng.random() < 0.35:
            made.system, turns = memory.persona(rng, held)
            made.system += " " + asks
        else:
            turns = plain(rng, held)
            made.system = asks if rng.random() < 0.6 else rng.choice(SYSTEMS) + " " + asks
        made.turns = memory.in_capitals(turns)
    elif kind < 0.93:
        made.tools, made.turns = tools.tool_call(rng, held)
        if rng.random() < 0.25:
            made.system = rng.choice(SYSTEMS)
        if rng.random() < 0.12:
            made.turns = plain(rng, held) + made.turns
    elif kind < 0.96:
        made.tools, made.turns = tools.unfit(rng, held)
    else:
        made.tools = tools.some(rng)
        while not made.turns or any(t.skill == "unknown" for t in made.turns):
            made.turns = plain(rng, held)
    return made


def stream(seed, held=False):
    """Conversations without end; the same seed gives the same."""
    rng = random.Random(seed)
    while True:
        yield draw(rng, held)
