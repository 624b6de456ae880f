"""Questions about pictures, with their answers: (skill, question, sentence, one word) each, or None where a picture has none."""

from vision.scenes import DIGITS, NAMES, SHAPES

NUMBERS = ("no", "one", "two", "three")
NOUNS = ("picture", "image", "photo")
ORDINALS = ("first", "second", "third")
FILLERS = (
    "Hello!", "Hi.", "Please help me.", "I have a question.", "Look at this picture.", "Look at this image.", "Here is a picture.",
    "Please answer.", "Take a close look.", "Look carefully.", "I cannot see well.", "Use the image.", "Here you are.", "Look:",
    "Please tell me.", "I want to know.", "Answer the question about the image.", "Thank you.", "This is a test.", "Be precise.",
    "Tell me:", "Can you see it?", "Just a question.", "Answer shortly.", "Thanks!",
)  # fmt: skip
ONE_WORD = ("Answer in one word.", "Answer with one word.", "One word, please.", "Answer with a single word.", "Reply with one word only.")


def article(name):
    return "an" if name[0] in "aeio" or name == "8" else "a"


def a(thing):
    return f"{article(thing.color)} {thing.color} {thing.name}"


def shape(name):
    return f"{article(name)} {name}"


def plural(name):
    return {"cross": "crosses"}.get(name, f"{name}s")


def capital(text):
    return text[0].upper() + text[1:]


def listed(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def color_of(rng, scene):
    if not scene.things:
        return plain_color(rng, scene)
    color, noun = rng.choice(("color", "colour")), rng.choice(NOUNS)
    one = rng.choice(scene.things)
    if len(scene.things) == 1 and rng.random() < 0.3:
        word = "digit" if one.is_digit else rng.choice(("shape", "object", "thing", "figure"))
        if rng.random() < 0.1:
            word = "number" if one.is_digit else word
        asked = rng.choice((f"Which {color} is the {word}?", f"What {color} is the {word}?", f"What {color} is it?", f"Which {color} is this {word}?",
                            f"What is the {color} of the {word}?", f"What {color} is the {word} in the {noun}?", f"What {color} do you see?"))
        return "color", asked, f"The {one.name} is {one.color}.", one.color
    if rng.random() < 0.1:
        absent = rng.choice([name for name in SHAPES if not scene.shapes() or all(t.name != name for t in scene.things)])
        return "absent", f"{rng.choice(('Which', 'What'))} {color} is the {absent}?", f"There is no {absent}.", "none"
    if scene.one(name=one.name) is None:
        return None
    name = one.name if not one.is_digit or rng.random() < 0.7 else rng.choice((f"digit {one.name}", f"number {one.name}"))
    asked = rng.choice((f"Which {color} is the {name}?", f"What {color} is the {name}?", f"What is the {color} of the {name}?",
                        f"Which {color} is the {name} in this {noun}?", f"What {color} is the {name} in the {noun}?", f"Which {color} does the {name} have?",
                        f"Tell me the {color} of the {name}.", f"Name the {color} of the {name}.", f"The {name} in the {noun} is of which {color}?"))
    return "color", asked, f"The {one.name} is {one.color}.", one.color


def plain_color(rng, scene):
    if scene.background is None:
        return None
    color, noun = rng.choice(("color", "colour")), rng.choice(NOUNS)
    asked = rng.choice((f"What {color} is this?", f"What {color} is this {noun}?", f"Which {color} is the {noun}?", f"What is the {color} of this {noun}?",
                        f"What {color} do you see?", f"Which {color} is it?"))
    return "plain", asked, f"The {noun if noun in asked else 'picture'} is {scene.background}.", scene.background


def what_shape(rng, scene):
    shapes = scene.shapes()
    if not shapes:
        return None
    one, noun = rng.choice(shapes), rng.choice(NOUNS)
    word = rng.choice(("shape", "shape", "shape", "figure", "geometric shape"))
    if len(shapes) == 1:
        asked = rng.choice((f"What {word} is this?", f"Which {word} is this?", f"Which {word} do you see?", f"What {word} is in the {noun}?", f"Name the {word}.",
                            f"What {word} does this {noun} show?", f"Which {word} is shown?", f"What {word} can you see in this {noun}?", f"What is the {word}?",
                            f"Which {word} is in this {noun}?"))
        return "shape", asked, f"It is {shape(one.name)}.", one.name
    if scene.one(color=one.color) is None:
        return None
    asked = rng.choice((f"Which {word} is {one.color}?", f"What {word} is {one.color}?", f"What {word} is the {one.color} one?", f"Name the {one.color} {word}.",
                        f"What is the {one.color} {word}?", f"Which {word} is {one.color} in this {noun}?"))
    return "shape", asked, f"It is {shape(one.name)}.", one.name


def what_digit(rng, scene):
    digits = scene.digits()
    if not digits:
        return None
    one, noun, word = rng.choice(digits), rng.choice(NOUNS), rng.choice(("digit", "digit", "number"))
    answer = f"It is {article(one.name)} {one.name}."
    if len(digits) == 1:
        return "digit", rng.choice((f"Which {word} is this?", f"What {word} is this?", f"Which {word} do you see?", f"What {word} is in the {noun}?",
                                    f"What {word} is shown?", f"Read the {word}.", f"Which {word} is in this {noun}?", f"What {word} does the {noun} show?",
                                    f"What is the {word}?", f"What {word} can you see?")), answer, one.name
    if scene.one(color=one.color) is None:
        return None
    return "digit", rng.choice((f"Which {word} is {one.color}?", f"What {word} is {one.color}?", f"What is the {one.color} {word}?",
                                f"Read the {one.color} {word}.")), answer, one.name


def what_is(rng, scene):
    """By its color."""
    if not scene.things:
        return None
    one = rng.choice(scene.things)
    if rng.random() < 0.1:
        absent = rng.choice([name for name in NAMES if all(t.color != name for t in scene.things) and name != scene.background])
        return "absent", f"What is {absent}?", f"Nothing is {absent}.", "nothing"
    if scene.one(color=one.color) is None:
        return None
    asked = rng.choice((f"What is {one.color}?", f"What is {one.color} in this {rng.choice(NOUNS)}?", f"What is the {one.color} thing?",
                        f"Which thing is {one.color}?"))
    return "by color", asked, f"The {one.name} is {one.color}.", one.name


def where(rng, scene):
    if not scene.things:
        return None
    one = rng.choice(scene.things)
    if scene.one(name=one.name) is None or one.place() is None:
        return None
    called = one.name if rng.random() < 0.75 or scene.one(color=one.color) is None else f"{one.color} {one.name}"
    noun = rng.choice(NOUNS)
    asked = rng.choice((f"Where is the {called}?", f"Where is the {called} in the {noun}?", f"Where do you see the {called}?",
                        f"In which part of the {noun} is the {called}?", f"Where can I find the {called}?"))
    short = one.place().removeprefix("on the ").removeprefix("at the ").removeprefix("in the ")
    return "place", asked, f"The {one.name} is {one.place()}.", short


def what_where(rng, scene):
    """What is at a side."""
    if len(scene.things) < 2:
        return None
    name, of = rng.choice((("left", "column"), ("right", "column"), ("top", "row"), ("bottom", "row")))
    sides = [getattr(thing, of)() for thing in scene.things]
    if None in sides or sides.count(name) != 1:
        return None
    one = scene.things[sides.index(name)]
    at = f"on the {name}" if of == "column" else f"at the {name}"
    kind = rng.random()
    if kind < 0.55:
        asked = rng.choice((f"What is {at}?", f"What do you see {at}?", f"What is {at} of the {rng.choice(NOUNS)}?", f"Which thing is {at}?"))
        return "side", asked, f"{capital(a(one))} is {at}.", one.name
    if kind < 0.8:
        color = rng.choice(("color", "colour"))
        word = "digit" if one.is_digit else "shape"
        return "side", f"{rng.choice(('What', 'Which'))} {color} is the {word} {at}?", f"The {one.name} is {one.color}.", one.color
    word = "digit" if one.is_digit else "shape"
    return "side", rng.choice((f"Which {word} is {at}?", f"What {word} is {at}?")), f"It is {shape(one.name)}.", one.name


def count(rng, scene):
    noun = rng.choice(NOUNS)
    kind = rng.random()
    if kind < 0.6:
        name = rng.choice(scene.things).name if scene.things and rng.random() < 0.75 else rng.choice(SHAPES)
        if name in DIGITS:
            return None
        number, many = sum(thing.name == name for thing in scene.things), plural(name)
    elif kind < 0.75 and not scene.digits():
        number, name, many = len(scene.things), "shape", "shapes"
    elif kind < 0.9:
        number, name, many = len(scene.things), "thing", rng.choice(("things", "objects"))
        name = "object" if many == "objects" else name
    else:
        number, name, many = len(scene.digits()), "digit", "digits"
    asked = rng.choice((f"How many {many} are there?", f"How many {many} do you see?", f"How many {many} are in the {noun}?", f"Count the {many}.",
                        f"How many {many} does the {noun} show?", f"How many {many} can you see in this {noun}?"))
    said = f"There is one {name}." if number == 1 else f"There are {NUMBERS[number]} {many}."
    return "count", asked, said, "none" if number == 0 else NUMBERS[number]


def describe(rng, scene):
    noun = rng.choice(NOUNS)
    asked = rng.choice((f"What is in this {noun}?", f"What's in this {noun}?", f"Describe this {noun}.", f"Describe the {noun}.", f"What do you see in this {noun}?",
                        "What do you see?", f"What does this {noun} show?", "What is this?", "Describe what you see.", f"What is in the {noun}?",
                        f"What can you see in the {noun}?", f"Tell me about this {noun}.", f"What is shown in this {noun}?", f"Please describe the {noun}.",
                        f"What's on the {noun}?", f"What is on this {noun}?", "What can you see?", "Describe it.", f"Describe this {noun} in one sentence."))
    said = described(scene)
    return said and ("describe", asked, said, None)


def described(scene):
    things = scene.things
    if not things:
        return scene.background and f"A plain {scene.background} picture."
    if len(things) == 1:
        return capital(a(things[0])) + "."
    if len(things) == 2:
        one, other = things
        if abs(one.x - other.x) > 1.6 * abs(one.y - other.y) and abs(one.x - other.x) > 0.3:
            one, other = sorted(things, key=lambda thing: thing.x)
            return f"{capital(a(one))} on the left and {a(other)} on the right."
        if abs(one.y - other.y) > 1.6 * abs(one.x - other.x) and abs(one.y - other.y) > 0.3:
            one, other = sorted(things, key=lambda thing: thing.y)
            return f"{capital(a(one))} above {a(other)}."
        return None
    for key in ("x", "y"):
        order = sorted(things, key=lambda thing: getattr(thing, key))
        if all(getattr(after, key) - getattr(before, key) > 0.22 for before, after in zip(order, order[1:])):
            return capital(listed([a(thing) for thing in order])) + "."
    return None


def background(rng, scene):
    if scene.background is None:
        return None
    color, noun = rng.choice(("color", "colour")), rng.choice(NOUNS)
    asked = rng.choice((f"Which {color} is the background?", f"What {color} is the background?", f"What is the {color} of the background?",
                        f"What {color} is the background of this {noun}?", f"What {color} does the background have?"))
    return "background", asked, f"The background is {scene.background}.", scene.background


def whether_color(rng, scene):
    if not scene.things:
        return None
    one = rng.choice(scene.things)
    if scene.one(name=one.name) is None:
        return None
    true = rng.random() < 0.5
    color = one.color if true else rng.choice([name for name in NAMES if name != one.color])
    asked = f"Is the {one.name} {color}?"
    return "yes or no", asked, f"{'Yes' if true else 'No'}, the {one.name} is {one.color}.", "yes" if true else "no"


def whether_there(rng, scene):
    present = [thing.name for thing in scene.things]
    if scene.things and rng.random() < 0.5:
        name = rng.choice(present)
    else:
        name = rng.choice(SHAPES if rng.random() < 0.75 else DIGITS)
    noun, there = rng.choice(NOUNS), name in present
    asked = rng.choice((f"Is there {shape(name)}?", f"Is there {shape(name)} in the {noun}?", f"Do you see {shape(name)}?", f"Can you see {shape(name)} in this {noun}?",
                        f"Does the {noun} show {shape(name)}?"))
    return "yes or no", asked, f"Yes, there is {shape(name)}." if there else f"No, there is no {name}.", "yes" if there else "no"


SKILLS = (
    (color_of, 5), (what_shape, 4), (what_digit, 4), (what_is, 2), (where, 2.5), (what_where, 3), (count, 3), (describe, 4), (background, 1.2),
    (whether_color, 1.2), (whether_there, 1.5),
)  # fmt: skip


def ask(rng, scene):
    """A question that this scene answers."""
    while True:
        made = rng.choices([skill for skill, _ in SKILLS], [weight for _, weight in SKILLS])[0](rng, scene)
        if made:
            return made


def worded(rng, made):
    """(skill, question as someone may type it, answer)."""
    skill, question, sentence, word = made
    answer = sentence
    if word and rng.random() < 0.07:
        question, answer = f"{question} {rng.choice(ONE_WORD)}", word
    if rng.random() < 0.12:
        question = f"{rng.choice(FILLERS)} {question}"
    if rng.random() < 0.08:
        question = f"{question} {rng.choice(FILLERS)}"
    if rng.random() < 0.03:
        question = "".join(rng.choice("abcdefghijklmnoprstuw") for _ in range(rng.randint(3, 9))).capitalize() + ". " + question
    if rng.random() < 0.12:
        question = question[0].lower() + question[1:]
    if rng.random() < 0.08:
        question = question.rstrip("?.!")
    return skill, question, answer
