"""Measures the two files on pictures and questions that training did not have, by skill, in numpy:

    python -m vision.held_out TEXT.gguf TOWER.gguf [--count 600]

`fresh` pictures show only pairs of shape and color that training never showed.
"""

import argparse
import collections
import random

from PIL import Image

from vision import dialogues, drawing, questions, reference, scenes

SEED = 987_654


def cases(seed, count, fresh):
    """(skill, question, answer, picture): one question each."""
    rng = random.Random(seed)
    for _ in range(count):
        scene = scenes.scene(rng, rng.choice((1, 1, 2, 3)) if fresh else None, fresh)
        picture = drawing.draw(rng, scene)
        skill, question, answer = questions.worded(rng, questions.ask(rng, scene))
        yield skill, question, answer, picture


def dialogue(rng):
    """A conversation of several turns, pictures or tools, as the template writes it: (text, pictures)."""
    sample = rng.choice((dialogues.turns, dialogues.several, dialogues.tool, dialogues.text_only))(rng, False)
    text = "".join(text for text, _ in sample.start)
    if sample.branches:
        text += "".join(text for text, _ in rng.choice(sample.branches))
    return text.rstrip("\n"), [Image.fromarray(tile) for tile, _ in sample.pictures]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("tower")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--show", type=int, default=12)
    args = parser.parse_args()
    model = reference.Model(args.text, args.tower)
    wrong = []
    for title, fresh, seed in (("held out", False, SEED), ("fresh pairs", True, SEED + 1)):
        found = collections.defaultdict(list)
        for skill, question, answer, picture in cases(seed, args.count if not fresh else args.count // 2, fresh):
            said, _, _ = model.answer(reference.asked(question, [picture]), [picture])
            found[skill].append(said == answer)
            if said != answer:
                wrong.append((question, answer, said))
        report(title, found)
    found, rng = collections.defaultdict(list), random.Random(SEED + 2)
    for _ in range(args.count // 3):
        text, pictures = dialogue(rng)
        prompt, _, answer = text.removesuffix(dialogues.END).rpartition(dialogues.ASSISTANT)
        said = model.continued(prompt + dialogues.ASSISTANT, pictures)[0]
        found["several pictures" if len(pictures) > 1 else "one picture, turns" if pictures else "text"].append(said == answer)
        if said != answer:
            wrong.append((prompt[-60:], answer, said))
    report("conversations", found)
    for question, answer, said in wrong[: args.show]:
        print(f"{question!r}: wanted {answer!r}, got {said!r}")


def report(title, found):
    print(f"| {title} | cases | right | share |\n|---|---|---|---|")
    for skill, right in [*sorted(found.items()), ("all", [one for many in found.values() for one in many])]:
        print(f"| {skill} | {len(right)} | {sum(right)} | {sum(right) / len(right):.1%} |")


if __name__ == "__main__":
    main()
