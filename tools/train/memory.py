"""Things told earlier in a conversation and asked for later, and what system prompts ask."""

import words
from skills import Turn, turn

KINDS = (
    ("name", ("My name is {x}.", "I am {x}.", "I'm {x}.", "Hi, my name is {x}.", "Hello, I am {x}.", "Call me {x}."),
     ("What is my name?", "Do you remember my name?", "Who am I?", "what's my name?"),
     "Your name is {x}.", ("Nice to meet you, {x}!", "Hello, {x}!", "Hello, {x}! How can I help you?")),
    ("colour", ("My favourite colour is {x}.", "I like the colour {x} best."),
     ("What is my favourite colour?", "Which colour do I like?", "Which colour do I like best?"),
     "Your favourite colour is {x}.", ("I will remember that.", "{X} is a fine colour.")),
    ("pet", ("I have a pet called {x}.", "My pet is called {x}.", "My cat is called {x}.", "My dog is called {x}."),
     ("What is my pet called?", "What is the name of my pet?"),
     "Your pet is called {x}.", ("{x} is a nice name.", "I will remember that.")),
    ("town", ("I live in {x}.", "I come from {x}.", "My home is in {x}."),
     ("Where do I live?", "Where is my home?", "Where do I come from?"),
     "You live in {x}.", ("I will remember that.", "{x} sounds like a nice place.")),
    ("number", ("My lucky number is {x}.", "Remember the number {x}.", "The number is {x}."),
     ("What is my number?", "What was the number?", "Which number did I tell you?"),
     "The number is {x}.", ("I will remember that.", "I will remember {x}.")),
    ("word", ("The secret word is {x}.", "Remember the word {x}.", "The password is {x}."),
     ("What is the secret word?", "What was the word?", "Which word did I tell you?"),
     "The word is {x}.", ("I will remember that.", "I will remember {x}.")),
)


def value(rng, held, kind):
    if kind == "colour":
        return rng.choice(words.COLOURS)
    if kind == "number":
        return str(words.number(rng, held, 9999))
    if kind == "word":
        return words.word(rng, held)
    return words.name(rng, held)


def told_and_asked(rng, held, between):
    """A fact, what lies between, and the question for it."""
    picked = rng.sample(KINDS, rng.choice((1, 1, 2)))
    told, asked = [], []
    for kind, tell, ask, answer, replies in picked:
        x = value(rng, held, kind)
        fill = lambda text, x=x: text.replace("{x}", x).replace("{X}", x.capitalize())
        said = fill(rng.choice(tell))
        told.append(Turn(said, fill(rng.choice(replies)), f"The user tells me: {x}.", "chat"))
        asked.append(turn(rng.choice(ask), fill(answer), f"The user said: {x}.", "memory"))
    rng.shuffle(asked)
    return told + between + asked


def nothing_told(rng, held):
    """Asked for what was never said."""
    del held
    kind, _, ask, _, _ = rng.choice(KINDS)
    what = {"name": "your name", "colour": "your favourite colour", "pet": "your pet's name", "town": "where you live",
            "number": "a number", "word": "a word"}[kind]
    return [turn(rng.choice(ask), f"You have not told me {what}.", "The user has not told me.", "memory")]


WHO = (
    "Who are you?", "What is your name?", "who are you", "What are you called?", "Tell me your name.", "Your name?",
    "Introduce yourself.", "what's your name?",
)


def persona(rng, held):
    """A system prompt that gives a name, and perhaps a trade."""
    name = words.name(rng, held)
    trade = rng.choice(("assistant", "helper", "robot", "teacher", "guide", "librarian", "captain", "cook", "gardener",
                        "sailor", "painter", "baker"))
    kind = rng.choice(("", "", "friendly ", "helpful ", "kind ", "cheerful "))
    described = words.with_article(kind + trade)
    system = rng.choice(
        (f"You are {name}, {described}.", f"Your name is {name}. You are {described}.", f"You are {name}.",
         f"Your name is {name}.", f"You are {described} named {name}.", f"You are {described} called {name}.")
    )
    has_trade = trade in system
    answer = f"I am {name}, {described}." if has_trade else f"I am {name}."
    turns = [turn(rng.choice(WHO), answer, f"The system message says that I am {name}.", "persona")]
    if rng.random() < 0.4:
        greeting = rng.choice(("Hello!", "Hi", "Hello", "Good morning!", "hey"))
        said = f"Hello! I am {name}. How can I help you?"
        turns.insert(rng.randrange(2), turn(greeting, said, f"The user greets me. I am {name}.", "persona"))
    return system, turns


CAPITALS = (
    "Answer in capitals.", "Answer in capital letters.", "Always answer in capital letters.", "Use only capital letters.",
    "Write everything in capitals.", "Respond in upper case.", "Reply only in capital letters.", "Answer in upper case.",
)


def in_capitals(turns):
    """The same turns, answered in capitals."""
    for t in turns:
        t.answer = t.answer.upper()
        t.skill = "capitals"
        t.check = {"equals": t.answer} if t.check else {}
    return turns
