"""The evaluation: questions of other seeds, with words, numbers and sums that training never has.
`python held_out.py DATA OUT.jsonl`; `evaluate.py OUT.jsonl` asks them."""

import argparse
import json
import pathlib
import random

import conversations
import facts
import memory
import rendering
import skills
import stories
import tools
import vocabulary
import words
from conversations import Conversation

EACH = 80


def one(skill, conversation, turn, check=None):
    """A case: everything up to the question of `turn`."""
    asked = {"messages": rendering.messages(conversation, turn)}
    if conversation.tools:
        asked["tools"] = conversation.tools
    if conversation.thinking:
        asked["chat_template_kwargs"] = {"enable_thinking": True}
    check = dict(check or conversation.turns[turn].check)
    if conversation.thinking:
        check["reasoning"] = True
    return {"skill": skill, "request": asked, "check": check}


def short(made, most=8):
    """Spelling and reversing are measured up to eight letters."""
    return len(made[0].answer.replace("-", "")) <= most


def plain(rng, name, make, wanted=lambda made: True, thinking=False):
    while True:
        made = make(rng, True)
        if wanted(made):
            return one(name, Conversation(turns=made, thinking=thinking), len(made) - 1)


def context(rng):
    between = [t for _ in range(rng.choice((0, 1, 2))) for t in conversations.plain(rng, True)]
    turns = memory.told_and_asked(rng, True, between)
    return one("context", Conversation(turns=turns), len(turns) - 1)


def persona(rng):
    system, turns = memory.persona(rng, True)
    at = next(i for i, t in enumerate(turns) if t.user in memory.WHO)
    return one("system: persona", Conversation(system=system, turns=turns), at)


def capitals(rng):
    made = rng.choice((skills.spell, skills.reverse, skills.calendar, facts.about, facts.topic))
    turns = memory.in_capitals(made(rng, True))
    if made is facts.about:
        turns[0].check = {"equals_any": [a.upper() for q, answers in facts.ABOUT if turns[0].user in q for a in answers]}
    return one("system: capitals", Conversation(system=rng.choice(memory.CAPITALS), turns=turns), 0)


def called(rng):
    """A call with unseen arguments."""
    while True:
        offered, turns = tools.tool_call(rng, True)
        if fresh(turns[0].call["arguments"]):
            return one("tool: call", Conversation(tools=offered, turns=turns), 0)


def fresh(arguments):
    """Whether something in it was kept out of training."""
    texts = [f"n{value}" if isinstance(value, int) else word for value in arguments.values() for word in str(value).split()]
    return any(words.held_out(text) for text in texts)


def result(rng):
    while True:
        offered, turns = tools.tool_call(rng, True)
        if len(turns) == 2:
            return one("tool: result", Conversation(tools=offered, turns=turns), 1)


def choice(rng):
    """To call or not: half of them need a tool, a quarter needs one that is not there, a quarter needs none."""
    roll = rng.random()
    if roll < 0.5:
        offered, turns = tools.tool_call(rng, True)
        return one("tool: to call or not", Conversation(tools=offered, turns=turns), 0, {"calls": True})
    if roll < 0.75:
        offered, turns = tools.unfit(rng, True)
    else:
        offered, turns = tools.some(rng), rng.choice((skills.add, skills.spell, skills.count, stories.story, facts.about))(rng, True)
    return one("tool: to call or not", Conversation(tools=offered, turns=turns), 0, {"calls": False})


def mode(rng):
    """Thinking asked for, or not."""
    made = rng.choice((skills.add, skills.reverse, skills.spell, facts.about, stories.story, skills.calendar))(rng, True)
    thinks = rng.random() < 0.5
    case = one("thinking on and off", Conversation(turns=made, thinking=thinks), 0, {"reasoning": thinks})
    case["request"]["chat_template_kwargs"] = {"enable_thinking": thinks}
    return case


def worked_out(rng):
    return plain(rng, "sum or difference, thinking", rng.choice((skills.add, skills.subtract)), thinking=True)


MAKE = (
    lambda rng: plain(rng, "count", skills.count),
    lambda rng: plain(rng, "spell", skills.spell, short),
    lambda rng: plain(rng, "reverse", skills.reverse, short),
    lambda rng: plain(rng, "reverse, thinking", skills.reverse, short, thinking=True),
    lambda rng: plain(rng, "sum", skills.add),
    lambda rng: plain(rng, "difference", skills.subtract),
    worked_out,
    lambda rng: plain(rng, "order words", skills.order),
    lambda rng: plain(rng, "next day, month", skills.calendar),
    lambda rng: plain(rng, "story", stories.story),
    lambda rng: plain(rng, "about", facts.about),
    lambda rng: plain(rng, "one after another", skills.again),
    context, persona, capitals, called, result, choice, mode,
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=77)
    args = parser.parse_args()
    words.know(vocabulary.Vocabulary.load(args.data / "vocabulary.json").words)
    rng = random.Random(args.seed)
    with open(args.out, "w") as out:
        for make in MAKE:
            for _ in range(EACH):
                out.write(json.dumps(make(rng), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
