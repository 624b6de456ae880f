"""What a picture shows: shapes and digits with colors and places, before anything is drawn."""

import colorsys
import hashlib
from dataclasses import dataclass, field

import numpy as np

SHAPES = ("square", "circle", "triangle", "cross", "star", "diamond", "ring")
DIGITS = tuple("0123456789")
# Hue in degrees, saturation, value: ranges within which a person would say the name; and the value that programs write.
COLORS = {
    "red": ((-8, 8), (0.75, 1), (0.7, 1), (255, 0, 0)),
    "orange": ((22, 38), (0.85, 1), (0.9, 1), (255, 165, 0)),
    "yellow": ((50, 62), (0.75, 1), (0.88, 1), (255, 255, 0)),
    "green": ((95, 150), (0.6, 1), (0.42, 1), (0, 128, 0)),
    "blue": ((212, 245), (0.7, 1), (0.55, 1), (0, 0, 255)),
    "purple": ((268, 302), (0.55, 1), (0.45, 0.95), (128, 0, 128)),
    "black": ((0, 360), (0, 0.3), (0, 0.1), (0, 0, 0)),
    "white": ((0, 360), (0, 0.03), (0.95, 1), (255, 255, 255)),
}
NAMES = tuple(COLORS)
PLACES = ("left", "right", "top", "bottom", "middle")
# Patches of an edge of the tile.
SIDE = 8
# Squared distance of colors, channels 0 to 1, that is seen well.
CONTRAST = 0.12


@dataclass
class Thing:
    """A shape or a digit. Places are parts of the edges, the radius a part of the shorter edge."""

    name: str
    color: str
    x: float
    y: float
    radius: float
    rgb: tuple = (0, 0, 0)

    @property
    def is_digit(self):
        return self.name in DIGITS

    def column(self):
        return side(self.x, "left", "right")

    def row(self):
        return side(self.y, "top", "bottom")

    def place(self):
        """In words, or None where a person might hesitate."""
        column, row = self.column(), self.row()
        if column is None or row is None:
            return None
        if column == row == "middle":
            return "in the middle"
        if row == "middle":
            return f"on the {column}"
        return f"at the {row}" if column == "middle" else f"at the {row} {column}"


@dataclass
class Scene:
    """A picture to be drawn. The background's name is None where it has none that is asked for."""

    background: str | None
    ground: tuple
    things: list = field(default_factory=list)

    def shapes(self):
        return [thing for thing in self.things if not thing.is_digit]

    def digits(self):
        return [thing for thing in self.things if thing.is_digit]

    def one(self, **wanted):
        """The only thing with these properties, or None."""
        found = [thing for thing in self.things if all(getattr(thing, key) == value for key, value in wanted.items())]
        return found[0] if len(found) == 1 else None


def side(at, low, high):
    if 0.42 <= at <= 0.58:
        return "middle"
    return low if at <= 0.37 else high if at >= 0.63 else None


def held_out(name, color):
    """Pairs that training never shows: about a tenth, by hash."""
    return hashlib.sha256(f"{color} {name}".encode()).digest()[0] % 10 == 0


def shade(rng, name):
    """One of the colors of a name, channels 0 to 255."""
    hue, saturation, value, written = COLORS[name]
    if rng.random() < 0.35:
        return written
    made = colorsys.hsv_to_rgb(rng.uniform(*hue) / 360 % 1, rng.uniform(*saturation), rng.uniform(*value))
    return tuple(round(channel * 255) for channel in made)


def apart(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b)) / 255**2 > CONTRAST


def ground(rng):
    """(name or None, color) of a background."""
    kind = rng.random()
    if kind < 0.4:
        return "white", shade(rng, "white")
    if kind < 0.5:
        return "black", shade(rng, "black")
    if kind < 0.75:
        name = rng.choice(NAMES)
        return name, shade(rng, name)
    if kind < 0.87:
        level = rng.randint(90, 215)
        return None, (level, level, level)
    made = colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.08, 0.3), rng.uniform(0.85, 1))
    return None, tuple(round(channel * 255) for channel in made)


def places(rng, count):
    """Places and radii that do not overlap: (x, y, radius) each."""
    if count == 1:
        radius = rng.uniform(0.15, 0.4)
        room = 0.98 - radius
        if rng.random() < 0.45:
            return [(rng.uniform(0.43, 0.57), rng.uniform(0.43, 0.57), radius)]
        low, high = min(0.5, radius + 0.02), max(0.5, room)
        return [(rng.uniform(low, high), rng.uniform(low, high), radius)]
    if count == 2 and rng.random() < 0.8:
        near, far = rng.uniform(0.2, 0.3), rng.uniform(0.7, 0.8)
        a, b = rng.uniform(0.36, 0.64), rng.uniform(0.36, 0.64)
        radii = [rng.uniform(0.14, 0.22) for _ in range(2)]
        if rng.random() < 0.5:
            return [(near, a, radii[0]), (far, b, radii[1])]
        return [(a, near, radii[0]), (b, far, radii[1])]
    if count == 3 and rng.random() < 0.4:
        radii = [rng.uniform(0.12, 0.15) for _ in range(3)]
        line = [rng.uniform(0.17, 0.2), rng.uniform(0.46, 0.54), rng.uniform(0.8, 0.83)]
        cross = [rng.uniform(0.3, 0.7) for _ in range(3)]
        pairs = list(zip(line, cross)) if rng.random() < 0.6 else list(zip(cross, line))
        return [(x, y, radius) for (x, y), radius in zip(pairs, radii)]
    while True:
        found = []
        for _ in range(40):
            radius = rng.uniform(0.12, 0.17)
            x, y = rng.uniform(radius + 0.02, 0.98 - radius), rng.uniform(radius + 0.02, 0.98 - radius)
            if all((x - a) ** 2 + (y - b) ** 2 > (1.35 * (radius + c)) ** 2 for a, b, c in found):
                found.append((x, y, radius))
            if len(found) == count:
                return found


def name_of(rng):
    return rng.choice(SHAPES) if rng.random() < 0.68 else rng.choice(DIGITS)


def thing(rng, name, at, fresh):
    """With a color that is allowed: pairs of `held_out` only where `fresh` is True (only them) or None (both)."""
    while True:
        color = rng.choice(NAMES)
        if fresh is None or held_out(name, color) == fresh:
            break
        if fresh:
            name = name_of(rng)
    return Thing(name, color, *at)


def scene(rng, count=None, fresh=False):
    """A random scene; of `fresh` see `thing`. About one in seventeen shows nothing."""
    if count is None:
        count = rng.choices((0, 1, 2, 3), (1, 9, 5, 2))[0]
    background, color = ground(rng)
    made = Scene(background, color)
    same = name_of(rng) if rng.random() < 0.3 else None
    tint = rng.random() < 0.1
    for at in places(rng, count) if count else ():
        name = same if same and rng.random() < 0.75 else name_of(rng)
        one = thing(rng, name, at, fresh)
        if tint and made.things and not held_out(one.name, made.things[0].color):
            one.color = made.things[0].color
        if one.is_digit:
            one.radius = max(one.radius, 0.16)
        while True:
            one.rgb = shade(rng, one.color)
            if one.color != made.background and apart(one.rgb, made.ground):
                break
            made.background, made.ground = ground(rng)
            if not all(t.color != made.background and apart(t.rgb, made.ground) for t in made.things):
                made.background, made.ground = None, (128, 128, 128)
        made.things.append(one)
    return made


def labels(scene, size):
    """What each patch shows, (5, patches) of numbers from 1: the thing's name and color, the background's color, and
    words for the thing's place (of `PLACES`). 0: none."""
    middle = (np.arange(SIDE) + 0.5) / SIDE
    found, shorter = np.zeros((5, SIDE, SIDE), dtype=np.int64), min(size)
    found[2] = NAMES.index(scene.background) + 1 if scene.background else 0
    for thing in scene.things:
        across, down = ((middle - at) * edge / shorter / thing.radius for at, edge in zip((thing.x, thing.y), size))
        inside = across[None, :] ** 2 + down[:, None] ** 2 < 1.1
        inside |= (abs(down) == abs(down).min())[:, None] & (abs(across) == abs(across).min())[None, :]
        found[0, inside] = (SHAPES + DIGITS).index(thing.name) + 1
        found[1, inside] = NAMES.index(thing.color) + 1
        place = [word for word in (thing.place() or "").split() if word in PLACES] + [None, None]
        for plane, word in zip((3, 4), place):
            found[plane, inside] = PLACES.index(word) + 1 if word else 0
    return found.reshape(5, -1)
