"""Short stories from a small world: who, where, what is found, what goes wrong, who helps, how it ends."""

import words
from skills import Turn
from words import with_article

OPENINGS = (
    "Once upon a time, {q_hero} lived {place_in}.", "There was once {q_hero} who lived {place_in}.",
    "Long ago, {q_hero} lived {place_in}.", "In a quiet corner of the world, {q_hero} lived {place_in}.",
    "One {season} morning, {q_hero} woke up {place_in}.", "{Q_hero} lived {place_in}, where the days were long and calm.",
)
NAMINGS = (
    "{Its} name was {name}.", "Everyone called {it} {name}.", "The neighbours called {it} {name}.",
    "{Its} friends called {it} {name}.",
)
WISHES = (
    "{name} loved to walk when the sun came up.", "{name} wanted to see what lay behind the hill.",
    "{name} had never been far from home.", "{name} liked to sing while the others slept.",
    "{name} wished for a friend more than anything.", "{name} was not afraid of the dark.",
    "Every day {name} went out to look for something new.",
)
FINDS = (
    "One day {name} found {q_thing} under a tree.", "One {time}, {name} saw {q_thing} lying in the grass.",
    "By the side of the road {name} found {q_thing}.", "On the way home {name} came upon {q_thing}.",
    "That {time}, {q_thing} came floating down the stream, and {name} pulled it out.",
)
THOUGHTS = (
    '"Whose can this {thing} be?" asked {name}.', '"I must find out where the {thing} came from," said {name}.',
    "{name} looked at the {thing} for a long time.", '"What {q_thing}!" said {name}.',
    "The {thing} was {colour} and it shone in the light.", "Nobody had ever seen such {a_thing} before.",
)
TROUBLES = (
    "But then a storm came, and the wind carried the {thing} away.", "But the {thing} was too heavy to carry alone.",
    "Then it began to rain, and the path turned to mud.", "But on the way back {name} lost the path.",
    "Then the {thing} fell into a deep hole.", "But when night fell, the {thing} was gone.",
)
HELPERS = (
    "Just then {q_helper} came by and stopped.", "{Q_helper} heard the noise and came to see.",
    "Behind a bush sat {q_helper}, who had seen it all.", "Luckily, {q_helper} was not far away.",
)
OFFERS = (
    '"Do not worry," said the {helper}. "I will help you."', '"I know what to do," said the {helper}.',
    '"Two are stronger than one," said the {helper}.', "The {helper} did not say much, but it was kind.",
    '"Follow me," said the {helper}, "and do not look back."',
)
DEEDS = (
    "Together they looked until they had the {thing} back.", "They worked side by side until the moon came out.",
    "They pulled and pulled, and at last they had the {thing}.", "The {helper} went first, and {name} came after with the {thing}.",
    "Step by step they brought the {thing} home.",
)
ENDINGS = (
    "From that day on, {name} and the {helper} were friends.", "And every {season} they met again {place_in}.",
    "{name} kept the {thing} by the window, and it made every evening bright.", "That night {name} slept better than ever before.",
    "{name} gave the {thing} to the {helper}, and both were happy.", "And if you go there today, you may still see them.",
)
ALONE_DEEDS = (
    "So {name} sat down and thought about it.", "{name} took a deep breath and tried once more.",
    "{name} waited until morning and then began again.",
)
ALONE_ENDINGS = (
    "In the end the {thing} was safe, and {name} was proud.", "{name} carried the {thing} home and showed it to everyone.",
    "From that day on, the {thing} never left {name}.",
)
MIDDLES = (
    "The next day they went further than ever before.", "They crossed a bridge, and then a field full of flowers.",
    "On a hill they rested and shared some bread.", "They talked about the stars and about the sea.",
    "An old crow told them a riddle, and they laughed.", "Snow fell, and they made a small fire.",
    "In the evening they heard music from far away.", "They met a miller, who gave them a little flour.",
    "When they were thirsty, they drank from the stream.", "At noon they slept in the shade of a big tree.",
    "They followed the river until it became wide and slow.", "A boat took them to the other side.",
)
INSIDE = "forest meadow garden village valley barn castle cave orchard town marsh attic stable field tower market".split()


def where(place):
    """`in a forest`, `on an island`."""
    return f"{'in' if place in INSIDE else 'near' if place in ('bridge', 'well', 'pond', 'mill') else 'by' if place in ('river', 'lake', 'harbour') else 'on'} {with_article(place)}"


def world(rng, given):
    """What fills the sentences; `given` has words that must be used, by their kinds."""
    hero = given.get("hero") or rng.choice(words.ANIMALS)
    helper = given.get("helper") or rng.choice([a for a in words.ANIMALS if a != hero])
    thing, place = given.get("thing") or rng.choice(words.THINGS), given.get("place") or rng.choice(words.PLACES)
    q_hero = with_article(f"{rng.choice(words.QUALITIES)} {hero}")
    q_helper = with_article(f"{rng.choice(words.QUALITIES)} {helper}")
    colour = given.get("colour") or rng.choice(words.COLOURS)
    fill = {
        "hero": hero, "helper": helper, "thing": thing, "place_in": where(place), "q_hero": q_hero, "q_helper": q_helper,
        "q_thing": with_article(f"{colour} {thing}"), "a_thing": with_article(thing), "colour": colour,
        "name": given.get("name") or rng.choice(words.NAMES), "it": "it", "Its": "Its",
        "season": rng.choice(("spring", "summer", "autumn", "winter")), "time": rng.choice(("morning", "evening", "afternoon")),
    }
    fill["Q_hero"] = q_hero[0].upper() + q_hero[1:]
    fill["Q_helper"] = q_helper[0].upper() + q_helper[1:]
    return fill


def tell(rng, given, long=False, helper=None):
    """The story; a long one has three paragraphs."""
    fill = world(rng, given)
    with_helper = helper if helper is not None else (long or "helper" in given or rng.random() < 0.6)
    say = lambda choices: rng.choice(choices).format(**fill)
    first = [say(OPENINGS), say(NAMINGS)] + ([say(WISHES)] if long or rng.random() < 0.5 else [])
    second = [say(FINDS)] + [line.format(**fill) for line in rng.sample(THOUGHTS, 1 if not long else 2)]
    second.append(say(TROUBLES))
    if with_helper:
        third = [say(HELPERS), say(OFFERS), say(DEEDS)]
        if long:
            third[3:] = rng.sample(MIDDLES, rng.randint(3, 6))
        third += [line.format(**fill) for line in rng.sample(ENDINGS, 2 if long else 1)]
    else:
        third = [say(ALONE_DEEDS), say(ALONE_ENDINGS)]
    if long:
        return "\n\n".join(" ".join(part) for part in (first, second, third)), fill
    return " ".join(first + second + third), fill


def story(rng, held):
    """Asked for with words that must appear, with few, or with none."""
    del held
    given = {}
    roll = rng.random()
    if roll > 0.15:
        hero = rng.choice(words.ANIMALS)
        given["hero"] = hero
        if roll > 0.35:
            given["thing"] = rng.choice(words.THINGS)
        if roll > 0.7:
            given["place"] = rng.choice(words.PLACES)
        if roll > 0.9:
            given["helper"] = rng.choice([a for a in words.ANIMALS if a != hero])
    if rng.random() < 0.2:
        given["name"] = rng.choice(words.NAMES)
    long = rng.random() < 0.15
    text, fill = tell(rng, given, long)
    kind = rng.choice(("long ", "long ", "longer ")) if long else rng.choice(("", "", "short ", "little "))
    ask = rng.choice(("Tell me a {k}story", "Write a {k}story", "Write me a {k}story", "Tell a {k}story", "I want a {k}story",
                      "Can you tell me a {k}story", "Make up a {k}story"))
    ask = ask.replace("{k}", kind)
    named = [with_article(given[k]) for k in ("hero", "helper", "thing", "place") if k in given]
    if "name" in given and "hero" in given:
        named[0] += f" called {given['name']}"
    elif "name" in given:
        named = [f"someone called {given['name']}"]
    if named:
        bare = [item.split(" ", 1)[1] for item in named]
        together = named[0] if len(named) == 1 else ", ".join(named[:-1]) + " and " + named[-1]
        if rng.random() < 0.15 and "name" not in given:
            ask += " with the words " + ", ".join(bare)
        else:
            ask += rng.choice((" about ", " about ", " with ")) + together
    ask += "?" if ask.startswith("Can") else rng.choice((".", ".", "", ", please."))
    think = f"A story with {fill['hero']}, {fill['thing']} and a name, {fill['name']}."
    check = {"contains": [given[k] for k in ("hero", "helper", "thing", "place", "name") if k in given], "at_least": 150}
    return [Turn(ask, text, think, "story", check)]
