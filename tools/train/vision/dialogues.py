"""Conversations as the template writes them. A sample has pictures and segments; of several branches each follows the
same beginning and none sees another: so one picture is asked many things at the price of one."""

from dataclasses import dataclass

from vision import drawing, questions, scenes

ROWS = 16
END = "<|im_end|>"
IMAGE = "<fake_token_around_image><global-img>" + "<image>" * ROWS + "<fake_token_around_image>"
ASSISTANT = "<|im_start|>assistant\n"
SYSTEMS = (
    "You are a helpful assistant.", "You look at pictures.", "Answer questions about images.", "You are a helpful vision assistant.",
    "Be brief.", "You are Millrace.", "You see well. Answer in English.",
)  # fmt: skip
TOOLS = ("screenshot", "camera", "take_picture", "look", "see", "view_image", "show")
LOOK = ("What do you see?", "Take a picture and describe it.", "Look and tell me what you see.", "What does the screen show?", "What is there?")
GREETINGS = (
    ("Hello", "Hello! Show me a picture and ask about it."), ("Hi", "Hello! Show me a picture and ask about it."),
    ("Good morning", "Hello! Show me a picture and ask about it."), ("Who are you?", "I am a little model that sees shapes, colors and digits."),
    ("What can you do?", "I can tell you about shapes, colors and digits in pictures."),
    ("What is your name?", "I am a little model that sees shapes, colors and digits."), ("Thank you", "You are welcome."), ("Thanks", "You are welcome."),
)  # fmt: skip
BLIND = "I see no picture."


@dataclass
class Sample:
    """`pictures`: (tile, what is where) each; `start` and each branch: lists of (text, learned); `skills`: that of each answer, in order."""

    pictures: list
    start: list
    branches: list
    skills: list


def system(rng):
    if rng.random() < 0.8:
        return []
    return [(f"<|im_start|>system\n{rng.choice(SYSTEMS)}{END}\n", False)]


def user(content):
    return f"<|im_start|>user\n{content}{END}\n{ASSISTANT}"


def seen(rng, fresh, count=None):
    """A scene, and (its tile, what is where in it)."""
    scene = scenes.scene(rng, count, fresh)
    if not scene.things and rng.random() < 0.3:
        picture = drawing.draw(rng, scene, (rng.choice((1, 2, 8, 16)),) * 2, True)
    else:
        picture = drawing.draw(rng, scene)
    return scene, (drawing.tile(picture), scenes.labels(scene, picture.size))


def branches(rng, fresh):
    """The picture first, then one of several questions."""
    scene, picture = seen(rng, fresh)
    start = system(rng) + [("<|im_start|>user\n" + IMAGE + rng.choice(("", "", "", "\n")), False)]
    made, skills, asked = [], [], set()
    for _ in range(6):
        skill, question, answer = questions.worded(rng, questions.ask(rng, scene))
        if question in asked:
            continue
        asked.add(question)
        made.append([(f"{question}{END}\n{ASSISTANT}", False), (answer + END, True)])
        skills.append(skill)
    return Sample([picture], start, made, skills)


def text_first(rng, fresh):
    """A question, then the picture; then perhaps another about it."""
    scene, picture = seen(rng, fresh)
    parts, skills = system(rng), []
    for turn in range(rng.choice((1, 1, 2, 3))):
        skill, question, answer = questions.worded(rng, questions.ask(rng, scene))
        content = question + rng.choice(("", "", "\n", " ")) + IMAGE if turn == 0 else question
        parts += [(user(content), False), (answer + END, True), ("\n", False)]
        skills.append(skill)
    return Sample([picture], parts, [], skills)


def turns(rng, fresh):
    """Several turns; a new picture may come with each, and questions are about the latest."""
    parts, skills, pictures, scene = system(rng), [], [], None
    for turn in range(rng.choice((2, 3))):
        if turn == 0 and rng.random() < 0.15:
            question, answer = rng.choice(GREETINGS)
            parts += [(user(question), False), (answer + END, True), ("\n", False)]
            skills.append("text")
            continue
        shown = ""
        if scene is None or rng.random() < 0.55:
            (scene, picture), shown = seen(rng, fresh), IMAGE
            pictures.append(picture)
        skill, question, answer = questions.worded(rng, questions.ask(rng, scene))
        parts += [(user(shown + question if rng.random() < 0.65 else question + shown), False), (answer + END, True), ("\n", False)]
        skills.append(skill)
    return Sample(pictures, parts, [], skills)


def several(rng, fresh):
    """Two or three pictures in a message, and questions about one of them or all."""
    count = rng.choice((2, 2, 2, 3))
    both = [seen(rng, fresh, rng.choice((1, 1, 1, 2))) for _ in range(count)]
    found = [scene for scene, _ in both]
    gap = rng.choice(("", "", "\n"))
    start = system(rng) + [("<|im_start|>user\n" + gap.join([IMAGE] * count), False)]
    made = [several_question(rng, found) for _ in range(5)]
    made = [[(f"{question}{END}\n{ASSISTANT}", False), (answer + END, True)] for question, answer in filter(None, made)]
    return Sample([picture for _, picture in both], start, made, ["several"] * len(made))


def several_question(rng, found):
    which, noun = rng.randrange(len(found)), rng.choice(questions.NOUNS)
    ordinal = questions.ORDINALS[which]
    kind = rng.random()
    if kind < 0.35:
        asked = rng.choice((f"What is in the {ordinal} {noun}?", f"Describe the {ordinal} {noun}.", f"What does the {ordinal} {noun} show?",
                            f"What do you see in the {ordinal} {noun}?"))
        said = questions.described(found[which])
        return said and (asked, said)
    if kind < 0.6 and len(found[which].things) == 1:
        one, color = found[which].things[0], rng.choice(("color", "colour"))
        word = one.name if rng.random() < 0.6 else "digit" if one.is_digit else "shape"
        return f"{rng.choice(('Which', 'What'))} {color} is the {word} in the {ordinal} {noun}?", f"The {one.name} is {one.color}."
    if kind < 0.8:
        one = rng.choice(found[which].things)
        if sum(one.name == thing.name for scene in found for thing in scene.things) != 1:
            return None
        return f"Which {noun} shows {questions.shape(one.name)}?", f"The {ordinal} {noun}."
    described = [questions.described(scene) for scene in found]
    if None in described or any(len(scene.things) > 1 for scene in found):
        return None
    said = [f"{questions.capital(word)}, {text[0].lower()}{text[1:]}" for word, text in zip(questions.ORDINALS, described)]
    asked = rng.choice((f"Describe these {noun}s.", f"What is in these {noun}s?", f"What do you see in these {noun}s?", f"What do the {noun}s show?"))
    return asked, " ".join(said)


def tool(rng, fresh):
    """A tool that gives a picture: it is called, and its result is described."""
    scene, picture = seen(rng, fresh)
    said = questions.described(scene)
    if said is None:
        return tool(rng, fresh)
    name = rng.choice(TOOLS) if rng.random() < 0.8 else "".join(rng.choice("abcdefghijklmnoprstuw_") for _ in range(rng.randint(4, 9)))
    about = rng.choice((" Takes a picture.", " Shows what is there.", "", " Gives an image."))
    head = f"<|im_start|>system\n<tools>\n{name} {{}}{about}\n</tools>{END}\n"
    call = f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'
    word = rng.choice(("", "", "Here is the picture.", "done"))
    result = f"<|im_start|>tool\n{word if rng.random() < 0.5 else ''}{IMAGE}{END}\n{ASSISTANT}"
    parts = [(head, False), (user(rng.choice(LOOK)), False), (call + END, True), ("\n", False), (result, False), (said + END, True)]
    return Sample([picture], parts, [], ["tool", "tool"])


def text_only(rng, fresh):
    """No picture: greetings, and questions that need one."""
    if rng.random() < 0.5:
        question, answer = rng.choice(GREETINGS)
        question += rng.choice(("", "!", ".", "")) if question[-1] != "?" else ""
    else:
        _, question, _ = questions.worded(rng, questions.ask(rng, scenes.scene(rng, None, fresh)))
        answer = BLIND
    return Sample([], system(rng) + [(user(question), False), (answer + END, True)], [], ["text"])


KINDS = ((branches, 73), (text_first, 9), (turns, 5), (several, 7), (tool, 2), (text_only, 4))
FIRST = ((branches, 88), (text_first, 9), (text_only, 3))


def sample(rng, fresh=False, kinds=KINDS):
    return rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0](rng, fresh)
