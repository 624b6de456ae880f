"""Samples as tensors, made while training runs."""

import random
from dataclasses import dataclass

import numpy as np
import torch

import vocabulary
from vision import dialogues, drawing, scenes

GRID = 4
SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tools>", "</tools>",
    "<image>", "<fake_token_around_image>", "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, GRID + 1) for column in range(1, GRID + 1)),
)  # fmt: skip
VOCABULARY = 544
# For a batch without pictures, so that the shapes of tensors stay.
NOTHING = (np.zeros((0, drawing.TILE, drawing.TILE, 3), dtype=np.uint8), np.zeros((0, 5, scenes.SIDE**2), dtype=np.int64))


@dataclass
class Batch:
    """`branches` of a token: 0 sees what is before it and is seen by all after it; others are seen by their own."""

    ids: torch.Tensor
    positions: torch.Tensor
    branches: torch.Tensor
    pictures: torch.Tensor
    labels: torch.Tensor
    rows: torch.Tensor
    wanted: torch.Tensor
    counts: torch.Tensor
    answers: torch.Tensor
    skills: list


def vocabulary_of(seed, samples=6000):
    """The words of so many samples."""
    rng = random.Random(seed)
    made = (dialogues.sample(rng) for _ in range(samples))
    texts = (text for one in made for text in written(one))
    return vocabulary.learn(texts, VOCABULARY, 3, SPECIALS)


def written(sample):
    yield "".join(text for text, _ in sample.start)
    for branch in sample.branches:
        yield "".join(text for text, _ in branch)


def encoded(vocab, sample):
    """(id, position, branch, answer's number or -1) of each token."""
    found, answers = [], 0
    shared = 0
    for number, parts in enumerate([sample.start, *sample.branches]):
        position = shared if number else 0
        for text, learned in parts:
            for token in vocab.encode(text):
                found.append((token, position, number, answers if learned else -1))
                position += 1
            answers += learned
        if number == 0:
            shared = position
    return np.array(found, dtype=np.int64)


def batch(vocab, samples):
    """Tensors of samples. A token of an answer of n tokens counts 1 / sqrt(n)."""
    coded = [encoded(vocab, sample) for sample in samples]
    longest = max(map(len, coded))
    ids, positions, branches = (np.zeros((len(coded), longest), dtype=np.int64) for _ in range(3))
    branches -= 1
    rows, wanted, counts, answers, skills = [], [], [], [], []
    for row, (code, sample) in enumerate(zip(coded, samples)):
        ids[row, : len(code)], positions[row, : len(code)], branches[row, : len(code)] = code[:, 0], code[:, 1], code[:, 2]
        at = np.flatnonzero(code[:, 3] >= 0)
        # The first token of a branch is never learned, so what predicts a token is the one before it.
        rows.append(at - 1 + row * longest)
        wanted.append(code[at, 0])
        number = code[at, 3]
        counts.append(1 / np.sqrt(np.bincount(number)[number]))
        answers.append(number + len(skills))
        skills += sample.skills
    pictures = [picture for sample in samples for picture in sample.pictures]
    tiles, labels = map(np.stack, zip(*pictures)) if pictures else NOTHING
    return Batch(
        *map(torch.from_numpy, (ids, positions, branches)),
        torch.from_numpy(tiles), torch.from_numpy(labels),
        *(torch.from_numpy(np.concatenate(part)) for part in (rows, wanted)),
        torch.from_numpy(np.concatenate(counts).astype(np.float32)),
        torch.from_numpy(np.concatenate(answers)), skills,
    )  # fmt: skip


def stream(vocab, seed, size, kinds=dialogues.KINDS):
    """Endless batches; samples of like length are together."""
    rng = random.Random(seed)
    while True:
        many = [dialogues.sample(rng, False, kinds) for _ in range(size * 8)]
        many.sort(key=lambda sample: sum(len(text) for text in written(sample)) + 400 * len(sample.pictures))
        found = [many[at : at + size] for at in range(0, len(many), size)]
        rng.shuffle(found)
        for samples in found:
            yield batch(vocab, samples)


def pictures(seed, size):
    """Endless (tiles, labels) of pictures alone."""
    rng = random.Random(seed)
    while True:
        yield tuple(torch.from_numpy(np.stack(part)) for part in zip(*(dialogues.seen(rng, False)[1] for _ in range(size))))
