"""Writes the training data: ids, what of them is learnt, and where each text begins. `python generate.py OUT`."""

import argparse
import itertools
import multiprocessing
import pathlib
import shutil
from array import array

import conversations
import rendering
import vocabulary
import words

LONGEST = 1024
VOCABULARY = 1280


def texts(seed, count, mix="all"):
    """Rendered texts of `count` conversations."""
    for conversation in itertools.islice(conversations.stream(seed, mix=mix), count):
        yield from rendering.parts(conversation)


def shard(work):
    seed, count, out, mix = work
    vocab = vocabulary.Vocabulary.load(out / "vocabulary.json")
    words.know(vocab.words)
    ids, learnt, starts = array("H"), array("B"), array("L")
    for parts in texts(seed, count, mix):
        one, mask = [], []
        for text, is_learnt in parts:
            new = vocab.encode(text)
            one += new
            mask += [is_learnt] * len(new)
        if len(one) > LONGEST:
            continue
        starts.append(len(ids))
        ids.extend(one)
        learnt.extend(mask)
    for name, data in (("ids", ids), ("learnt", learnt), ("starts", starts)):
        with open(out / f"{name}-{seed}.bin", "wb") as sink:
            data.tofile(sink)
    return len(starts), len(ids), sum(learnt)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--conversations", type=int, default=400_000)
    parser.add_argument("--mix", choices=conversations.MIXES, default="all", help="how often each kind comes")
    parser.add_argument("--vocabulary", type=pathlib.Path, help="that of other data")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.vocabulary:
        shutil.copyfile(args.vocabulary, args.out / "vocabulary.json")
    if not (args.out / "vocabulary.json").exists():
        sample = ("".join(text for text, _ in parts) for parts in texts(args.seed * 1000, 30_000))
        vocabulary.learn(sample, VOCABULARY).save(args.out / "vocabulary.json")
    work = [(args.seed * 1000 + 1 + i, args.conversations // args.shards, args.out, args.mix) for i in range(args.shards)]
    with multiprocessing.Pool(2) as pool:
        made = pool.map(shard, work, 1)
    count, tokens, learnt = map(sum, zip(*made))
    print(f"{count} texts, {tokens} tokens, {learnt} of them learnt, {tokens / count:.1f} a text")


if __name__ == "__main__":
    main()
