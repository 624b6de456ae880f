"""The vocabulary: bytes, whole words that are frequent, and control tokens.

Byte-level BPE in which a word is one token or its bytes, with nothing between: an unseen word is seen letter by letter,
which is what spelling, reversing and copying need. In GGUF's words: pre-tokenizer `llama-bpe`, where a word that is a
token becomes it whatever the merges say. The one merge joins two blanks.
"""

import json
import re
from collections import Counter

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tools>", "</tools>")
LETTER = r"[^\W\d_]"
WORDS = re.compile(
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?{LETTER}+|\d{{1,3}}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def splitter(specials):
    """What cuts a text at control tokens, and keeps them."""
    return re.compile("(" + "|".join(map(re.escape, specials)) + ")")


def byte_letters():
    """GPT-2's printable stand-ins for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {byte: chr(byte) for byte in plain}, 0
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_letters()


def shown(word):
    """A word as the vocabulary's file writes it."""
    return "".join(BYTES[byte] for byte in word.encode())


class Vocabulary:
    """Ids: specials, bytes, then words."""

    def __init__(self, words, specials=SPECIALS):
        self.words, self.specials = words, specials
        self.split = splitter(specials)
        self.tokens = [*specials, *(BYTES[byte] for byte in range(256)), *map(shown, words)]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.byte = [self.ids[BYTES[byte]] for byte in range(256)]
        self.word = {word: self.ids[shown(word)] for word in words}

    def encode(self, text):
        """Ids of a rendered text."""
        ids = []
        for part in self.split.split(text):
            if part in self.specials:
                ids.append(self.ids[part])
                continue
            for word in WORDS.findall(part):
                known = self.word.get(word)
                if known is not None:
                    ids.append(known)
                else:
                    ids.extend(self.byte[byte] for byte in word.encode())
        return ids

    def save(self, path):
        with open(path, "w") as out:
            json.dump(self.words, out, ensure_ascii=False, indent=0)

    @classmethod
    def load(cls, path, specials=SPECIALS):
        with open(path) as source:
            return cls(json.load(source), specials)


def worth(word):
    """Not what is spelled: bytes, numbers, a single letter after a dash or a blank. Two blanks are for the merge."""
    single = re.fullmatch(rf"[^\w]{LETTER}|_{LETTER}", word) and word not in (" a", " I")
    return len(word.encode()) > 1 and word != "  " and not single and not re.search(r"\d", word)


def learn(texts, size, least=3, specials=SPECIALS):
    """The most frequent words of two bytes and more, until there are `size` tokens. The two blanks are for the merge."""
    counts, split = Counter(), splitter(specials)
    for text in texts:
        for part in split.split(text):
            if part not in specials:
                counts.update(WORDS.findall(part))
    room = size - 256 - len(specials) - 1
    frequent = [(n, w) for w, n in counts.items() if n >= least and worth(w)]
    frequent.sort(key=lambda pair: (-pair[0], pair[1]))
    return Vocabulary(["  ", *(word for _, word in frequent[:room])], specials)
