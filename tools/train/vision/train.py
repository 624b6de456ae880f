"""Trains: `python -m vision.train RUN --minutes N`. Pictures are made by a second process while the first learns.
Stop it at any time; with the same RUN it continues."""

import argparse
import collections
import json
import os
import pathlib
import random
import time

import torch
import torch.nn.functional as F

import vocabulary
from vision import batches, dialogues, network

WARMUP = 100
MATRIX_RATE, MATRIX_DECAY, REST_RATE = 0.02, 0.02, 2e-3
# Weight of the loss of what patches show: large, as what answers teach the tower is noise at first.
ASIDE = 2.0
# Pictures of answers that are shown again to the tower alone.
RECENT = 6000


def feed(queue, path, seed, size, kinds):
    torch.set_num_threads(1)
    parent, vocab = os.getppid(), vocabulary.Vocabulary.load(path, batches.SPECIALS)
    for batch in batches.stream(vocab, seed, size, kinds) if kinds else batches.pictures(seed, 2 * size):
        queue.put(batch)
        if os.getppid() != parent:
            return


def mean(pairs, which):
    return round(sum(pair[which] for pair in pairs) / len(pairs), 4)


def logits(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, aside = model(batch)
    return found.float(), aside.float()


def patch_loss(model, tiles, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model.alone(tiles, labels)


@torch.no_grad()
def accuracy(model, held):
    """{skill: (right, all)} of answers whose every token is the likeliest, so that greedy decoding writes them."""
    found = collections.defaultdict(lambda: [0, 0])
    for batch in held:
        right = torch.ones(len(batch.skills), dtype=torch.int64)
        right.scatter_reduce_(0, batch.answers, (logits(model, batch)[0].argmax(-1) == batch.wanted).long(), "amin")
        for skill, one in zip(batch.skills, right.tolist()):
            found[skill][0] += one
            found[skill][1] += 1
    return {skill: tuple(pair) for skill, pair in sorted(found.items())}


class Run:
    """The model, its optimizers, its log."""

    def __init__(self, args, vocab):
        torch.manual_seed(args.seed)
        self.args = args
        self.model = network.Seeing(vocab)
        named = list(self.model.named_parameters())
        is_matrix = lambda name, weight: weight.dim() == 2 and not any(part in name for part in ("embed.", "position", "patch_names", "patch_colors"))
        matrices = [weight for name, weight in named if is_matrix(name, weight)]
        rest = [weight for name, weight in named if not is_matrix(name, weight)]
        self.optimizers = [
            torch.optim.Muon(matrices, MATRIX_RATE, weight_decay=MATRIX_DECAY, momentum=0.95),
            torch.optim.Adam(rest, REST_RATE, (0.9, 0.98)),
        ]
        self.rates = [MATRIX_RATE, REST_RATE]
        self.step, self.seen, self.seconds = 0, 0, 0.0
        self.recent = collections.deque(maxlen=RECENT)
        self.checkpoint = args.run / "checkpoint.pt"
        for number, path in enumerate([] if self.checkpoint.exists() else args.after):
            kept = torch.load(path, weights_only=True)["model"]
            state = {name: weight for name, weight in kept.items() if number == 0 or name.startswith("text.")}
            self.model.load_state_dict(state, strict=number == 0)
        if self.checkpoint.exists():
            kept = torch.load(self.checkpoint, weights_only=True)
            self.model.load_state_dict(kept["model"])
            for optimizer, state in zip(self.optimizers, kept["optimizers"]):
                optimizer.load_state_dict(state)
            self.step, self.seen, self.seconds = kept["step"], kept["pictures"], kept["seconds"]

    def factor(self):
        """Of the rates: up, level, down over the last part of the time. The file `minutes` of the run counts more than the argument."""
        file = self.args.run / "minutes"
        end = 60 * float(file.read_text() if file.exists() else self.args.minutes)
        return min(1.0, (self.step + 1) / WARMUP, max(0.0, (end - self.seconds) / (end * self.args.decay)))

    def learn(self, batch):
        """One step of answers, one of pictures alone, which are cheaper; (loss of answers, of patches)."""
        loss, pictures = 0.0, batch
        if not self.args.pictures_alone:
            self.recent.extend(zip(batch.pictures, batch.labels))
            again = random.sample(self.recent, min(len(self.recent), 2 * self.args.size))
            pictures = [torch.stack(part) for part in zip(*again)]
            found, aside = logits(self.model, batch)
            each = F.cross_entropy(found, batch.wanted, reduction="none")
            answers = (each * batch.counts).sum() / batch.counts.sum()
            (answers + ASIDE * aside).backward()
            self.update(len(batch.pictures))
            loss = answers.item()
        aside = patch_loss(self.model, *pictures)
        aside.backward()
        self.update(len(pictures[0]))
        self.step += 1
        return loss, aside.item()

    def update(self, count):
        """The optimizers' step."""
        scale = self.factor() * self.args.rate
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, rate in zip(self.optimizers, self.rates):
            optimizer.param_groups[0]["lr"] = rate * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.seen += count

    def save(self):
        kept = {"model": self.model.state_dict(), "optimizers": [one.state_dict() for one in self.optimizers], "step": self.step,
                "pictures": self.seen, "seconds": self.seconds}
        torch.save(kept, self.checkpoint.with_suffix(".tmp"))
        os.replace(self.checkpoint.with_suffix(".tmp"), self.checkpoint)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--size", type=int, default=16, help="samples of a step; twice as many pictures alone")
    parser.add_argument("--every", type=int, default=100, help="steps between lines of the log")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decay", type=float, default=0.4, help="part of the time over which rates fall to nothing")
    parser.add_argument("--pictures-alone", action="store_true", help="the tower learns what patches show, and nothing else is learned")
    parser.add_argument("--single", action="store_true", help="one picture and one turn only")
    parser.add_argument("--after", type=pathlib.Path, nargs="*", default=[], help="checkpoints; of later ones only the text part is taken")
    parser.add_argument("--rate", type=float, default=1.0, help="of the rates, where they are level")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.run.mkdir(parents=True, exist_ok=True)
    words = args.run / "vocabulary.json"
    if not words.exists():
        batches.vocabulary_of(args.seed).save(words)
    vocab = vocabulary.Vocabulary.load(words, batches.SPECIALS)
    run = Run(args, vocab)
    held = [one for one, _ in zip(batches.stream(vocab, -1, 24), range(16))]
    kinds = None if args.pictures_alone else dialogues.FIRST if args.single else dialogues.KINDS
    queue = torch.multiprocessing.get_context("spawn").Queue(12)
    maker = torch.multiprocessing.get_context("spawn").Process(target=feed, args=(queue, words, args.seed + 1000 * run.step + 1, args.size, kinds), daemon=True)
    maker.start()
    recent, saved = [], time.time()
    while (scale := run.factor()) > 0:
        began = time.time()
        recent.append(run.learn(queue.get()))
        run.seconds += time.time() - began
        if run.step % args.every == 0:
            line = {"step": run.step, "pictures": run.seen, "loss": mean(recent, 0), "patches": mean(recent, 1), "seconds": round(run.seconds), "rate": round(scale, 3)}
            if run.step % (args.every * 5) == 0 and not args.pictures_alone:
                line["right"] = {skill: round(right / count, 3) for skill, (right, count) in accuracy(run.model, held).items()}
            with open(args.run / "log.jsonl", "a") as log:
                log.write(json.dumps(line) + "\n")
            recent = []
        if time.time() - saved > 90:
            run.save()
            saved = time.time()
    run.save()
    maker.terminate()


if __name__ == "__main__":
    main()
