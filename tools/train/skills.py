"""What the model learns to do, but for stories, tools and facts: each skill draws one or more turns."""

from dataclasses import dataclass, field

import words
from words import DAYS, MONTHS, held_out


@dataclass
class Turn:
    """A question, what is thought about it when thinking is asked for, and the answer."""

    user: str
    answer: str
    think: str
    skill: str
    check: dict = field(default_factory=dict)


def turn(user, answer, think, skill):
    """A turn whose whole answer is known."""
    return Turn(user, answer, think, skill, {"equals": answer})


def quoted(rng, word):
    """As people write a word that is spoken of."""
    return rng.choice((word, word, f'"{word}"', f"'{word}'"))


def polite(rng, text):
    """A request with or without a please."""
    roll = rng.random()
    lower = text[0].lower() + text[1:]
    if roll < 0.12:
        return f"Please {lower}."
    if roll < 0.22:
        return f"Can you {lower}?"
    if roll < 0.28:
        return f"Could you {lower}, please?"
    if roll < 0.4:
        return lower
    return text + rng.choice((".", "", ".", ", please."))


def count(rng, held):
    """Count from a to b, up or down."""
    while True:
        top = rng.choice((10, 20, 50, 100, 200))
        low = rng.randint(0, top)
        high = low + rng.randint(2, 14)
        if held_out(f"count {low} {high}") == held:
            break
    down = rng.random() < 0.25
    first, last = (high, low) if down else (low, high)
    numbers = list(range(low, high + 1))[:: -1 if down else 1]
    said = ", ".join(map(str, numbers))
    if down:
        ask = rng.choice((f"Count down from {first} to {last}", f"Count backwards from {first} to {last}"))
    elif low == 1 and rng.random() < 0.5:
        ask = rng.choice((f"Count to {last}", f"Count up to {last}"))
    else:
        ask = rng.choice(
            (f"Count from {first} to {last}", f"Count up from {first} to {last}",
             f"List the numbers from {first} to {last}", f"Write the numbers from {first} to {last}")
        )
    think = f"I start at {first}, go {'down' if down else 'up'} by one and stop at {last}."
    return [turn(polite(rng, ask), said, think, "count")]


def letters_of(word):
    return "-".join(word)


def spell(rng, held):
    """Spell a word."""
    word = words.word(rng, held)
    w = quoted(rng, word)
    ask = rng.choice(
        (f"Spell {w}", f"Spell the word {w}", f"Spell out {w}", f"Spell out the word {w}", f"Say the letters of {w}")
    )
    ask = f"How do you spell {w}?" if rng.random() < 0.25 else polite(rng, ask)
    think = f"The word is {word}. I say its letters one by one."
    return [turn(ask, letters_of(word), think, "spell")]


def reverse(rng, held):
    """Write a word backwards."""
    word = words.word(rng, held)
    w = quoted(rng, word)
    ask = rng.choice(
        (f"Reverse {w}", f"Reverse the word {w}", f"Write {w} backwards", f"Write the word {w} backwards",
         f"Turn the word {w} around")
    )
    ask = f"What is {w} backwards?" if rng.random() < 0.25 else polite(rng, ask)
    think = f"The letters are {' '.join(word)}. From the end they are {' '.join(word[::-1])}."
    return [turn(ask, word[::-1], think, "reverse")]


def sum_thought(a, b):
    """Adds as one does on paper."""
    lines, carry, place = [], 0, ("Ones", "Tens", "Hundreds", "Thousands")
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(max(len(x), len(y))):
        p, q = int(x[i]) if i < len(x) else 0, int(y[i]) if i < len(y) else 0
        total = p + q + carry
        carried = f" + {carry}" if carry else ""
        lines.append(f"{place[i]}: {p} + {q}{carried} = {total}.")
        carry = total // 10
    return " ".join(lines)


def difference_thought(a, b):
    """Takes away as one does on paper; a >= b."""
    lines, borrow, place = [], 0, ("Ones", "Tens", "Hundreds", "Thousands")
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(len(x)):
        p, q = int(x[i]), int(y[i]) if i < len(y) else 0
        left = p - q - borrow
        taken = f" - {borrow}" if borrow else ""
        if left < 0:
            lines.append(f"{place[i]}: {p} + 10 - {q}{taken} = {left + 10}.")
        else:
            lines.append(f"{place[i]}: {p} - {q}{taken} = {left}.")
        borrow = 1 if left < 0 else 0
    return " ".join(lines)


def operands(rng, held):
    """Two numbers of one or two digits; some of three where nothing is measured."""
    most = 999 if not held and rng.random() < 0.12 else 99
    while True:
        a, b = (rng.randint(0, rng.choice((9, most, most))) for _ in range(2))
        if held_out(f"{min(a, b)} and {max(a, b)}") == held:
            return a, b


def add(rng, held):
    """A sum."""
    a, b = operands(rng, held)
    ask = rng.choice(
        (f"What is {a} + {b}?", f"What is {a} plus {b}?", f"{a} + {b} = ?", f"{a} + {b}", f"{a}+{b}",
         f"How much is {a} plus {b}?", f"How much is {a} + {b}?", polite(rng, f"Add {a} and {b}"),
         polite(rng, f"Calculate {a} + {b}"), f"what is {a}+{b}")
    )
    return [turn(ask, f"{a} + {b} = {a + b}", sum_thought(a, b), "add")]


def subtract(rng, held):
    """A difference that is not negative."""
    a, b = operands(rng, held)
    a, b = max(a, b), min(a, b)
    ask = rng.choice(
        (f"What is {a} - {b}?", f"What is {a} minus {b}?", f"{a} - {b} = ?", f"{a} - {b}", f"{a}-{b}",
         f"How much is {a} minus {b}?", f"How much is {a} - {b}?", polite(rng, f"Subtract {b} from {a}"),
         polite(rng, f"Calculate {a} - {b}"), f"what is {a}-{b}")
    )
    return [turn(ask, f"{a} - {b} = {a - b}", difference_thought(a, b), "subtract")]


def order(rng, held):
    """Words in the order of the alphabet; their first letters differ."""
    picked, seen = [], set()
    count_words = rng.randint(3, 6)
    while len(picked) < count_words:
        word = words.word(rng, held and len(picked) == 0)
        if word[0].lower() not in seen:
            seen.add(word[0].lower())
            picked.append(word)
    rng.shuffle(picked)
    in_order = sorted(picked, key=str.lower)
    given, said = ", ".join(picked), ", ".join(in_order)
    ask = rng.choice(
        (f"Sort these words: {given}", f"Put these words in order: {given}", f"Sort {given}",
         f"Order these words by the alphabet: {given}", f"Sort the words {given}", f"Sort alphabetically: {given}")
    )
    think = f"The first letters in order are {' '.join(w[0] for w in in_order)}."
    return [turn(ask + rng.choice((".", "")), said, think, "order")]


def calendar(rng, held):
    """The next or the previous day or month."""
    del held  # there are nineteen; nothing can be kept back
    names, what = rng.choice(((DAYS, "day"), (MONTHS, "month")))
    i = rng.randrange(len(names))
    here, after, before = names[i], names[(i + 1) % len(names)], names[i - 1]
    asked = here if rng.random() < 0.85 else here.lower()
    if rng.random() < 0.65:
        ask = rng.choice(
            (f"What {what} comes after {asked}?", f"Which {what} comes after {asked}?", f"What comes after {asked}?",
             f"What is the {what} after {asked}?", f"What is the next {what} after {asked}?",
             f"Which {what} follows {asked}?", polite(rng, f"Name the {what} after {asked}"))
        )
        if what == "day" and rng.random() < 0.2:
            ask = rng.choice((f"Today is {asked}. What day is tomorrow?", f"If today is {asked}, what day is tomorrow?"))
        return [turn(ask, f"{after} comes after {here}.", f"The {what} after {here} is {after}.", "calendar")]
    ask = rng.choice(
        (f"What {what} comes before {asked}?", f"Which {what} comes before {asked}?", f"What comes before {asked}?",
         f"What is the {what} before {asked}?", polite(rng, f"Name the {what} before {asked}"))
    )
    if what == "day" and rng.random() < 0.2:
        ask = rng.choice((f"Today is {asked}. What day was yesterday?", f"If today is {asked}, what day was yesterday?"))
    return [turn(ask, f"{before} comes before {here}.", f"The {what} before {here} is {before}.", "calendar")]


def repeat(rng, held):
    """Say something again, exactly."""
    text = words.phrase(rng, held, 5)
    if rng.random() < 0.2:
        text = str(words.number(rng, held, 9999))
    ask = rng.choice((f"Say {text}", f"Repeat after me: {text}", f"Repeat: {text}", f'Say "{text}"', f"Write {text}"))
    return [turn(ask + rng.choice((".", "")), text, f"I repeat {text}.", "repeat")]


def again(rng, held):
    """One thing after another about the same word or number."""
    kind = rng.randrange(3)
    if kind == 0:
        first = spell(rng, held)[0]
        word = first.answer.replace("-", "")
        ask = rng.choice(("Now reverse it.", "Now write it backwards.", "And backwards?", "And reversed?"))
        think = f"The letters are {' '.join(word)}. From the end they are {' '.join(word[::-1])}."
        return [first, turn(ask, word[::-1], think, "context")]
    if kind == 1:
        first = reverse(rng, held)[0]
        word = first.answer[::-1]
        ask = rng.choice(("Now spell it.", "Now spell the word.", "And how is it spelled?"))
        return [first, turn(ask, letters_of(word), f"The word is {word}. I say its letters one by one.", "context")]
    first = add(rng, held)[0]
    total, more = int(first.answer.split()[-1]), rng.randint(1, 9)
    if rng.random() < 0.5:
        ask = rng.choice((f"Now add {more}.", f"Add {more} to that.", f"And plus {more}?"))
        return [first, turn(ask, f"{total} + {more} = {total + more}", sum_thought(total, more), "context")]
    more = min(more, total)
    ask = rng.choice((f"Now subtract {more}.", f"Subtract {more} from that.", f"And minus {more}?"))
    return [first, turn(ask, f"{total} - {more} = {total - more}", difference_thought(total, more), "context")]
