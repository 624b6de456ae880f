"""Trains: `python train.py DATA RUN --steps N`. Two processes of one thread each share the batches of a step, first come
first served, and meet once a step, which is what a busy machine likes. Stop it at any time; with the same RUN it goes on."""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import data
import vocabulary
from model import Mini, Shape

WARMUP = 150
CLIP = 1.0
MATRIX_RATE, MATRIX_DECAY = 0.02, 0.02
REST_RATE = 3e-3


def orthogonal(update):
    """Newton and Schulz's iteration towards the nearest orthogonal matrix (Muon, by Keller Jordan)."""
    x = update.bfloat16()
    x = x / (x.norm() + 1e-7)
    if flipped := x.shape[0] > x.shape[1]:
        x = x.T
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.T if flipped else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal."""

    def __init__(self, weights, lr, decay):
        super().__init__(weights, {"lr": lr, "decay": decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self):
        """Each process makes its share of the updates orthogonal; all get all of them."""
        rank, ranks = dist.get_rank(), dist.get_world_size()
        group = self.param_groups[0]
        updates = []
        for i, weight in enumerate(group["params"]):
            state = self.state[weight]
            if not state:
                state["mean"] = torch.zeros_like(weight)
            mean = state["mean"].lerp_(weight.grad, 1 - group["momentum"])
            update = weight.grad.lerp(mean, group["momentum"])
            updates.append(orthogonal(update) if i % ranks == rank else torch.zeros_like(weight))
        flat = torch.cat([update.flatten() for update in updates])
        dist.all_reduce(flat)
        at = 0
        for weight in group["params"]:
            update = flat[at : at + weight.numel()].view_as(weight)
            at += weight.numel()
            weight.mul_(1 - group["lr"] * group["decay"])
            scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            weight.add_(update, alpha=-group["lr"] * scale)


def factor(step, steps, decay):
    """Of the rates: up, level, down over the last part `decay`."""
    return min(1.0, (step + 1) / WARMUP, max(0.0, (steps - step) / int(steps * decay)))


class Run:
    """One rank's model, optimisers and place in the data."""

    def __init__(self, args, rank, taken):
        torch.manual_seed(args.seed)
        self.args, self.rank, self.taken = args, rank, taken
        vocab = vocabulary.Vocabulary.load(args.data / "vocabulary.json")
        self.model = Mini(Shape(vocab=len(vocab.tokens)))
        matrices = [w for n, w in self.model.named_parameters() if w.dim() == 2 and "embed" not in n]
        rest = [w for n, w in self.model.named_parameters() if w.dim() == 1 or "embed" in n]
        self.optimisers = [Muon(matrices, MATRIX_RATE, MATRIX_DECAY), torch.optim.Adam(rest, REST_RATE, (0.9, 0.95))]
        self.rates = [MATRIX_RATE, REST_RATE]
        self.step, self.seen = 0, 0
        self.checkpoint = args.run / "checkpoint.pt"
        if args.after and not self.checkpoint.exists():
            self.model.load_state_dict(torch.load(args.after, weights_only=True)["model"])
        if self.checkpoint.exists():
            kept = torch.load(self.checkpoint, weights_only=True)
            self.model.load_state_dict(kept["model"])
            for optimiser, state in zip(self.optimisers, kept["optimisers"]):
                optimiser.load_state_dict(state)
            self.step, self.seen = kept["step"], kept["seen"]
        self.weights = list(self.model.parameters())
        self.model.layers = torch.nn.ModuleList(torch.compile(layer, dynamic=True) for layer in self.model.layers)

    def steps(self):
        """How many there will be; a number in the file `steps` of the run counts more than the argument, and may change."""
        file = self.args.run / "steps"
        return int(file.read_text()) if file.exists() else self.args.steps

    def loss(self, batch):
        """The weighted sum of losses, the sum of the weights, and how many tokens were seen."""
        ids, rows, wanted, counts = batch
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(ids, rows)
        each = F.cross_entropy(logits.float(), wanted, reduction="none")
        return (each * counts).sum(), counts.sum().item(), ids.numel()

    def shared(self, texts, order):
        """The batches of this step that this process is first to take."""
        picked = [next(order) for _ in range(self.args.micro)]
        while True:
            with self.taken.get_lock():
                i = self.taken.value - self.step * self.args.micro
                if i >= self.args.micro:
                    return
                self.taken.value += 1
            yield texts.batch(picked[i])

    def learn(self, texts, order):
        """One step; the mean loss of what this step learnt from."""
        total, count, seen = 0.0, 0, 0
        for batch in self.shared(texts, order):
            loss, weight, tokens = self.loss(batch)
            (loss / 100).backward()
            total, count, seen = total + loss.item(), count + weight, seen + tokens
        flat = torch.cat([torch.zeros(w.numel()) if w.grad is None else w.grad.flatten() for w in self.weights] + [torch.tensor([total, count, seen])])
        dist.all_reduce(flat)
        grads, (total, count, seen) = flat[:-3], flat[-3:].tolist()
        grads *= 100 / count
        grads *= min(1.0, CLIP / (grads.norm().item() + 1e-9))
        at = 0
        for weight in self.weights:
            weight.grad = grads[at : at + weight.numel()].view_as(weight)
            at += weight.numel()
        scale = factor(self.step, self.steps(), self.args.decay) * self.args.rate
        for optimiser, rate in zip(self.optimisers, self.rates):
            optimiser.param_groups[0]["lr"] = rate * scale
            optimiser.step()
        for weight in self.weights:
            weight.grad = None
        self.step, self.seen = self.step + 1, self.seen + int(seen)
        return total / count

    @torch.no_grad()
    def held_loss(self, texts, count=32):
        order = texts.order(self.args.tokens, 0)
        found = [self.loss(texts.batch(next(order))) for _ in range(count)]
        return sum(loss.item() for loss, _, _ in found) / sum(weight for _, weight, _ in found)

    def save(self):
        state = {name.replace("._orig_mod", ""): weight for name, weight in self.model.state_dict().items()}
        kept = {"model": state, "optimisers": [o.state_dict() for o in self.optimisers], "step": self.step, "seen": self.seen,
                "shape": vars(self.model.shape)}
        torch.save(kept, self.checkpoint.with_suffix(".tmp"))
        os.replace(self.checkpoint.with_suffix(".tmp"), self.checkpoint)


def work(rank, args, taken):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{args.run}/meeting", rank=rank, world_size=args.processes)
    run = Run(args, rank, taken)
    dist.barrier()
    taken.value = run.step * args.micro
    dist.barrier()
    shards = sorted(int(path.stem.split("-")[1]) for path in args.data.glob("ids-*.bin"))
    texts = data.Texts(args.data, shards[:-1])
    order = texts.order(args.tokens, (args.seed, run.step))
    kept_back = data.Texts(args.data, shards[-1:])
    began, recent, saved = time.time(), [], time.time()
    while run.step < run.steps():
        recent.append(run.learn(texts, order))
        if rank == 0 and run.step % args.every == 0:
            line = {"step": run.step, "tokens": run.seen, "loss": round(sum(recent) / len(recent), 4), "seconds": round(time.time() - began)}
            if run.step % (args.every * 5) == 0:
                line["other_texts"] = round(run.held_loss(kept_back), 4)
            with open(args.run / "log.jsonl", "a") as log:
                log.write(json.dumps(line) + "\n")
            recent = []
        if rank == 0 and (time.time() - saved > 120 or run.step == run.steps()):
            run.save()
            saved = time.time()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=2048, help="of one batch")
    parser.add_argument("--micro", type=int, default=3, help="batches a step")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--every", type=int, default=20, help="steps between lines of the log")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decay", type=float, default=0.3, help="part of the steps over which rates fall to nothing")
    parser.add_argument("--rate", type=float, default=1.0, help="of the rates, where they are level")
    parser.add_argument("--after", type=pathlib.Path, help="a checkpoint whose weights are learnt on from")
    args = parser.parse_args()
    args.run = args.run.absolute()
    args.run.mkdir(parents=True, exist_ok=True)
    (args.run / "meeting").unlink(missing_ok=True)
    torch.multiprocessing.spawn(work, (args, torch.multiprocessing.get_context("spawn").Value("q", 0)), args.processes)


if __name__ == "__main__":
    main()
