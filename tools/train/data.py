"""Batches of texts of like length, so that little is padding."""

import numpy as np
import torch

LENGTHS = (24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Texts:
    """All shards of a folder."""

    def __init__(self, folder, seeds):
        ids, learnt, self.starts = [], [], []
        at = 0
        for seed in seeds:
            one = np.fromfile(folder / f"ids-{seed}.bin", dtype=np.uint16)
            starts = np.fromfile(folder / f"starts-{seed}.bin", dtype=np.uint64).astype(np.int64)
            learnt.append(np.fromfile(folder / f"learnt-{seed}.bin", dtype=np.uint8))
            ids.append(one)
            self.starts.append(starts + at)
            at += len(one)
        self.ids, self.learnt = np.concatenate(ids), np.concatenate(learnt)
        self.starts = np.concatenate([*self.starts, [at]])

    def order(self, tokens, seed):
        """Endless: which texts make the next batch."""
        rng = np.random.default_rng(seed)
        sizes = np.diff(self.starts)
        while True:
            found = []
            for low, high in zip((0, *LENGTHS), LENGTHS):
                fits = np.flatnonzero((sizes > low) & (sizes <= high))
                rng.shuffle(fits)
                each = max(1, tokens // high)
                found += [fits[i : i + each] for i in range(0, len(fits), each)]
            for i in rng.permutation(len(found)):
                yield found[i]

    def batch(self, picked):
        """(ids (texts, positions), rows that predict, what they predict, what each of these counts).

        A token of a text with n learnt ones counts 1 / sqrt(n): the two digits of a sum are not lost among the words of stories.
        """
        longest = max(self.starts[i + 1] - self.starts[i] for i in picked)
        positions = next(length for length in LENGTHS if length >= longest)
        ids = np.zeros((len(picked), positions), dtype=np.int64)
        learnt = np.zeros((len(picked), positions), dtype=bool)
        for row, i in enumerate(picked):
            a, b = self.starts[i], self.starts[i + 1]
            ids[row, : b - a], learnt[row, : b - a] = self.ids[a:b], self.learnt[a:b]
        learnt[:, 0] = False
        rows = np.flatnonzero(np.roll(learnt.reshape(-1), -1))
        each = 1 / np.sqrt(np.maximum(1, learnt.sum(1)))
        counts = each[(rows + 1) // positions].astype(np.float32)
        return torch.from_numpy(ids), torch.from_numpy(rows), torch.from_numpy(ids.reshape(-1)[rows + 1]), torch.from_numpy(counts)
