"""Words, names, strings and numbers, and the split that keeps some of them out of training."""

import hashlib

HELD_OUT_EVERY = 10

ANIMALS = (
    "fox owl bear cat dog mouse frog rabbit duck goose horse pony goat sheep wolf deer hare crow swan otter badger "
    "beaver turtle hedgehog squirrel bat bee ant snail whale seal crab robin sparrow hen pig cow donkey"
).split()
THINGS = (
    "lantern kite boat drum bell key map book cup hat coat basket ladder rope wheel bucket candle clock box chest "
    "flute stone feather shell ring coin lamp broom spoon letter pillow blanket mirror button ribbon compass sail "
    "acorn apple pear plum cherry cake pie loaf seed leaf flower cart wagon net jar pot ball umbrella whistle"
).split()
PLACES = (
    "forest meadow garden village mill river lake hill mountain island harbour barn farm market cave valley beach "
    "bridge tower castle orchard field town marsh well pond stable attic"
).split()
COLOURS = "red blue green yellow white black brown grey golden silver purple orange pink".split()
QUALITIES = (
    "small old young brave kind shy clever happy quiet hungry lonely curious gentle patient proud tired merry tiny "
    "careful friendly sleepy lucky"
).split()
NAMES = (
    "Anna Ben Clara David Emma Finn Grace Henry Iris Jack Kate Leo Mia Noah Olive Peter Rosa Sam Tom Uma Vera Will "
    "Zoe Alma Bruno Cora Dora Elsa Felix Greta Hugo Ida Jonas Kira Lena Max Nora Otto Pia Rita Simon Tilda"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
OTHERS = (
    "water bread stone paper music winter summer spring autumn morning evening night star cloud rain snow wind fire "
    "tree grass road door window table chair house room wall floor roof kitchen school teacher friend brother sister "
    "mother father child baby king queen doctor farmer baker miller sailor painter singer dancer writer reader "
    "finger hand foot head heart nose mouth ear eye shoulder knee world country city street corner number letter "
    "word story song game dream hope fear love time hour minute second week month year spoon fork knife plate "
    "bottle glass pencil brush colour picture camera phone computer engine train plane ship wheel planet moon sun "
    "earth ocean wave sand desert jungle tiger lion monkey elephant giraffe zebra camel snake lizard spider "
    "butterfly dragon giant wizard castle crown sword shield horse banana lemon grape melon peach onion carrot "
    "potato tomato pepper salt sugar honey butter cheese milk coffee tea juice soup rice bean corn nut berry garden "
    "plant root branch forest wolf eagle hawk pigeon parrot chicken turkey copper iron gold silver wood wool cotton "
    "silk leather rubber plastic metal marble crystal diamond pearl planter simple gentle strong bright yellow "
    "orange purple ripple stream token server model answer question thunder lightning blossom pumpkin cabbage "
    "harvest village cottage chimney blanket curtain carpet ceiling basement ladder hammer nail screw saw drill"
).split()

WORDS = sorted(set(ANIMALS + THINGS + PLACES + COLOURS + QUALITIES + OTHERS))

ONSETS = "b c d f g h j k l m n p r s t v w z br cr dr fl gr pl st tr sh ch th cl pr sl".split()
VOWELS = "a e i o u a e i o ai ea ee oa oo ou".split()
CODAS = "n r s t l m d k p nd st ng ck ll".split()


# Words that are one token: how they are spelled can only be learnt by heart, so that they are never kept back.
KNOWN = set()


def know(vocabulary):
    """Takes the words of a vocabulary as known, and has them spelled too."""
    KNOWN.update(word.strip() for word in vocabulary if word.strip().isalpha())
    WORDS[:] = sorted(set(WORDS) | {word for word in KNOWN if word.islower() and word.isascii()})


def held_out(text):
    """Whether this text belongs to the evaluation alone."""
    if text in KNOWN:
        return False
    return hashlib.sha256(str(text).encode()).digest()[0] % HELD_OUT_EVERY == 0


def made_up(rng):
    """A word nobody knows: syllables, or letters."""
    if rng.random() < 0.35:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9)))
    word = ""
    for _ in range(rng.choice((1, 2, 2, 2, 3))):
        word += rng.choice(ONSETS) + rng.choice(VOWELS) + (rng.choice(CODAS) if rng.random() < 0.4 else "")
    return word


def sampled(rng, held, draw):
    """Draws until the text is on the wanted side of the split."""
    while True:
        text = draw()
        if held_out(text) == held:
            return text


def word(rng, held, longest=9):
    """A word of 2 to `longest` letters, known or made up."""

    def draw():
        known = rng.random() < (0.4 if not held else 0.5)
        return rng.choice(WORDS) if known else made_up(rng)

    while True:
        text = sampled(rng, held, draw)
        if 2 <= len(text) <= longest:
            return text.capitalize() if rng.random() < 0.07 else text


def name(rng, held):
    """A person's name."""

    def draw():
        if rng.random() < 0.3:
            return rng.choice(NAMES)
        return made_up(rng).capitalize()

    return sampled(rng, held, draw)


def phrase(rng, held, most=4):
    """One to `most` words, the last perhaps of the wanted side."""
    count = rng.randint(1, most)
    parts = [rng.choice(WORDS) for _ in range(count - 1)] + [word(rng, held)]
    rng.shuffle(parts)
    return " ".join(parts)


def number(rng, held, most=999):
    """A whole number from 1 to `most`; short ones are as frequent as long ones."""

    def draw():
        return rng.randint(1, rng.choice([n for n in (9, 99, 999, 9999) if n <= most]))

    for _ in range(200):
        value = draw()
        if held_out(f"n{value}") == held:
            return value
    return value


def with_article(noun):
    """`a fox`, `an owl`."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun
