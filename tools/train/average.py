"""The mean of two checkpoints' weights: what was learnt last, with what the first knew besides (Wortsman et al., "Robust
fine-tuning of zero-shot models", 2022). `python average.py FIRST LAST SHARE_OF_LAST OUT`."""

import argparse
import pathlib

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=pathlib.Path)
    parser.add_argument("last", type=pathlib.Path)
    parser.add_argument("share", type=float)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    first, last = (torch.load(path, weights_only=True) for path in (args.first, args.last))
    for name, weight in last["model"].items():
        last["model"][name] = first["model"][name].lerp(weight, args.share)
    last["step"], last["seen"] = first["step"] + last["step"], first["seen"] + last["seen"]
    torch.save(last, args.out)


if __name__ == "__main__":
    main()
