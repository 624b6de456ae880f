"""The network of SmolVLM, small: a SigLIP tower, pixel shuffle, one matrix, and the built-in model's Llama layers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import model
from vision import scenes


@dataclass
class TowerShape:
    """Sizes of the tower; those of the exported file too."""

    image: int = 64
    patch: int = 8
    dim: int = 128
    layers: int = 3
    heads: int = 4
    ffn: int = 384
    shuffle: int = 2
    eps: float = 1e-6

    @property
    def side(self):
        """Patches of an edge."""
        return self.image // self.patch

    @property
    def rows(self):
        return (self.side // self.shuffle) ** 2


def text_shape(vocab):
    return model.Shape(vocab=vocab, dim=128, layers=4, heads=4, kv_heads=2, head_dim=32, ffn=320, context=1024)


class TowerLayer(nn.Module):
    """Norm, attention over all patches, norm, feed-forward; everything with biases."""

    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.ln1 = nn.LayerNorm(shape.dim, shape.eps)
        self.attn_q = nn.Linear(shape.dim, shape.dim)
        self.attn_k = nn.Linear(shape.dim, shape.dim)
        self.attn_v = nn.Linear(shape.dim, shape.dim)
        self.attn_out = nn.Linear(shape.dim, shape.dim)
        self.ln2 = nn.LayerNorm(shape.dim, shape.eps)
        self.ffn_up = nn.Linear(shape.dim, shape.ffn)
        self.ffn_down = nn.Linear(shape.ffn, shape.dim)

    def forward(self, x):
        """(pictures, patches, dim) to the same."""
        h = self.ln1(x)
        q, k, v = (m(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.attn_q, self.attn_k, self.attn_v))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        mixed = scores.float().softmax(-1).to(v.dtype) @ v
        x = x + self.attn_out(mixed.transpose(1, 2).flatten(2))
        return x + self.ffn_down(F.gelu(self.ffn_up(self.ln2(x)), approximate="tanh"))


def waves(shape):
    """Positions to begin with, (patches, dim): waves along rows and columns, mixed, so that neighbors are alike."""
    at = (torch.arange(shape.side) + 0.5) / shape.side
    steps = torch.arange(shape.side)
    along = torch.cos(torch.pi * steps[None, :] * at[:, None]) / (1 + steps) ** 0.5
    both = torch.cat((along.repeat_interleave(shape.side, 0), along.repeat(shape.side, 1)), 1)
    return 0.6 * both @ torch.randn(both.shape[1], shape.dim)


class Tower(nn.Module):
    """Pictures (n, image, image, 3) of bytes to rows (n, rows, text dim)."""

    def __init__(self, shape, text_dim):
        super().__init__()
        self.shape = shape
        self.patch_embd = nn.Linear(3 * shape.patch**2, shape.dim)
        self.position_embd = nn.Parameter(waves(shape))
        self.layers = nn.ModuleList(TowerLayer(shape) for _ in range(shape.layers))
        self.post_ln = nn.LayerNorm(shape.dim, shape.eps)
        self.fc = nn.Linear(shape.dim * shape.shuffle**2, text_dim, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and name != "position_embd":
                scale = weight.shape[1] ** -0.5
                nn.init.normal_(weight, std=scale / (2 * shape.layers) ** 0.5 if name.endswith(("attn_out.weight", "ffn_down.weight")) else scale)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def patches(self, pictures):
        """(n, side * side, 3 * patch * patch): by channel, row, column, as the kernel of a convolution is stored."""
        s = self.shape
        x = (pictures.float() / 255 - 0.5) / 0.5
        x = x.unflatten(1, (s.side, s.patch)).unflatten(3, (s.side, s.patch))
        return x.permute(0, 1, 3, 5, 2, 4).flatten(3).flatten(1, 2)

    def seen(self, pictures):
        """(n, patches, dim), after the last norm."""
        x = self.patch_embd(self.patches(pictures)).float() + self.position_embd
        for layer in self.layers:
            x = layer(x)
        return self.post_ln(x)

    def forward(self, pictures):
        return self.fc(self.shuffled(self.seen(pictures)))

    def shuffled(self, x):
        """Blocks of shuffle * shuffle patches as one row: block's row, then its column, then dim."""
        s = self.shape
        x = x.unflatten(1, (s.side // s.shuffle, s.shuffle, s.side // s.shuffle, s.shuffle))
        return x.transpose(2, 3).flatten(3).flatten(1, 2)


class Seeing(nn.Module):
    """Ids and pictures to logits."""

    def __init__(self, vocab, tower=None):
        super().__init__()
        self.image_id = vocab.ids["<image>"]
        self.text = model.Mini(text_shape(len(vocab.tokens)))
        self.tower = Tower(tower or TowerShape(), self.text.shape.dim)
        # What each patch shows: learned along, since it teaches the tower long before the text asks for it. Not exported.
        self.patch_names = nn.Linear(self.tower.shape.dim, 1 + len(scenes.SHAPES + scenes.DIGITS))
        self.patch_colors = nn.Linear(self.tower.shape.dim, 1 + len(scenes.NAMES))
        words = [[f" {name}" for name in scenes.SHAPES] + list(scenes.DIGITS)] + [[f" {name}" for name in some] for some in (scenes.NAMES, scenes.PLACES)]
        for which, some in zip(("names", "colors", "places"), words):
            self.register_buffer(which, torch.tensor([0, *(vocab.encode(word)[0] for word in some)]), persistent=False)
        self.ground_id = vocab.encode(" background")[0]

    def forward(self, batch):
        """Logits (of the rows that predict, vocab), and the loss of what patches show (0 without pictures)."""
        text, (texts, positions) = self.text, batch.ids.shape
        x, aside = text.embed(batch.ids.flatten()), torch.zeros(())
        if len(batch.pictures):
            at = (batch.ids.flatten() == self.image_id).nonzero().squeeze(1)
            seen = self.tower.seen(batch.pictures)
            rows = self.tower.fc(self.tower.shuffled(seen))
            x = x.index_copy(0, at, rows.flatten(0, 1).to(x.dtype))
            aside = self.patch_loss(seen, batch.labels) + self.row_loss(rows, batch.labels)
        turns = batch.positions.flatten()
        cos, sin = text.cos[turns], text.sin[turns]
        before = torch.arange(positions)[:, None] >= torch.arange(positions)[None, :]
        branch = batch.branches
        sees = before & ((branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None]))
        mask = torch.zeros(sees.shape, dtype=torch.bfloat16).masked_fill_(~sees, float("-inf"))[:, None]
        for layer in text.layers:
            x = layer(x, cos, sin, mask, texts)
        return F.linear(text.norm(x)[batch.rows].bfloat16(), text.embed.weight), aside

    def alone(self, pictures, labels):
        """The loss of patches and rows without a text."""
        seen = self.tower.seen(pictures)
        return self.patch_loss(seen, labels) + self.row_loss(self.tower.fc(self.tower.shuffled(seen)), labels)

    def row_loss(self, rows, labels):
        """Rows lie near the words for what they show, so that what the text learns first is to copy."""
        s = self.tower.shape
        blocks = labels.unflatten(2, (s.side // s.shuffle, s.shuffle, s.side // s.shuffle, s.shuffle)).amax((3, 5)).flatten(2)
        names, colors, grounds, *places = blocks.unbind(1)
        shown = names > 0
        ground = torch.where(shown, 0, torch.where(grounds > 0, self.ground_id, 0))
        words = torch.stack((self.names[names], self.colors[torch.where(shown, colors, grounds)], ground, *(self.places[place] for place in places)), -1)
        counts = (words > 0) * torch.where(shown, 1.0, 0.1)[..., None]
        near = rows.float()
        near = near * torch.rsqrt(near.square().mean(-1, keepdim=True) + 1e-5)
        likely = F.log_softmax(F.linear(near.bfloat16(), self.text.embed.weight).float(), -1)
        return -(likely.gather(2, words) * counts).sum() / counts.sum().clamp(min=1)

    def patch_loss(self, seen, labels):
        """Patches without a thing count a fifth."""
        counts = torch.where(labels[:, 0] > 0, 1.0, 0.2)
        loss = 0
        for head, wanted in zip((self.patch_names, self.patch_colors), labels[:, :2].unbind(1)):
            each = F.cross_entropy(head(seen).float().flatten(0, 1), wanted.flatten(), reduction="none")
            loss = loss + (each * counts.flatten()).sum() / counts.sum()
        return loss
