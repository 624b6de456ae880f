"""Conversations: skills mixed with system prompts, tools, thinking and one another."""

import itertools
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
class Mix:
    """How often each kind of conversation comes."""

    # Plain, several plain, memory, persona, capitals, a call, no tool that fits, tools beside something else.
    kinds: tuple
    plain: tuple = PLAIN

    def kind(self, roll):
        """The number of the kind at a place from 0 to 1."""
        for number, bound in enumerate(itertools.accumulate(self.kinds)):
            if roll * 100 < bound:
                return number
        return len(self.kinds) - 1


def more(skills_of, often):
    """The plain skills, some of them so much more often."""
    return tuple((skill, weight * often if skill in skills_of else weight) for skill, weight in PLAIN)


MIXES = {
    "all": Mix((52, 8, 7, 5, 4, 17, 3, 4)),
    # What is learnt last: which tool fits, and taking away.
    "tools": Mix((22, 4, 4, 3, 6, 34, 20, 7), more((skills.subtract,), 3)),
    "sums": Mix((44, 4, 3, 3, 6, 28, 9, 3), more((skills.add, skills.subtract), 5)),
}


@dataclass
class Conversation:
    """What is rendered: a system prompt or none, tools or none, turns, and whether it thinks."""

    system: str | None = None
    tools: list = field(default_factory=list)
    turns: list = field(default_factory=list)
    thinking: bool = False


def plain(rng, held, only=None, mix=MIXES["all"]):
    """Turns of one skill."""
    made = only or rng.choices([skill for skill, _ in mix.plain], [weight for _, weight in mix.plain])[0]
    return made(rng, held)


def draw(rng, held=False, mix=MIXES["all"]):
    """One conversation."""
    made = Conversation(thinking=rng.random() < 0.22)
    kind = mix.kind(rng.random())
    if kind == 0:
        made.turns = plain(rng, held, mix=mix)
        if rng.random() < 0.15:
            made.system = rng.choice(SYSTEMS)
    elif kind == 1:
        made.turns = [t for _ in range(rng.randint(2, 7)) for t in plain(rng, held)]
    elif kind == 2:
        between = [t for _ in range(rng.choice((0, 0, 1, 2))) for t in plain(rng, held)]
        made.turns = memory.told_and_asked(rng, held, between)
    elif kind == 3:
        made.system, made.turns = memory.persona(rng, held)
        if rng.random() < 0.5:
            made.turns.insert(rng.randint(0, len(made.turns)), plain(rng, held, rng.choice((skills.spell, skills.add, skills.count)))[0])
    elif kind == 4:
        asks = rng.choice(memory.CAPITALS)
        if rng.random() < 0.35:
            made.system, turns = memory.persona(rng, held)
            made.system += " " + asks
        else:
            turns = plain(rng, held)
            made.system = asks if rng.random() < 0.6 else rng.choice(SYSTEMS) + " " + asks
        made.turns = memory.in_capitals(turns)
    elif kind == 5:
        made.tools, made.turns = tools.tool_call(rng, held)
        if rng.random() < 0.25:
            made.system = rng.choice(SYSTEMS)
        if rng.random() < 0.12:
            made.turns = plain(rng, held) + made.turns
    elif kind == 6:
        made.tools, made.turns = tools.unfit(rng, held)
    else:
        made.tools = tools.some(rng)
        while not made.turns or any(t.skill == "unknown" for t in made.turns):
            made.turns = plain(rng, held)
    return made


def stream(seed, held=False, mix="all"):
    """Conversations without end; the same seed gives the same."""
    rng = random.Random(seed)
    while True:
        yield draw(rng, held, MIXES[mix])
