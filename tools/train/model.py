"""The network: a small Llama (RMS norm, rope on adjacent pairs, SwiGLU, grouped heads, tied embedding)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    """Sizes; those of the exported file too."""

    vocab: int
    dim: int = 256
    layers: int = 5
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    ffn: int = 576
    context: int = 2048
    rope_base: float = 10000.0
    eps: float = 1e-5


class Norm(nn.Module):
    """x / rms(x) * weight, in f32."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rope(shape, positions):
    """(cos, sin), each (positions, head_dim / 2)."""
    half = shape.head_dim // 2
    inverse = shape.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * inverse[None, :]
    return angles.cos(), angles.sin()


def turn(x, cos, sin):
    """x (rows, heads, head_dim); pairs are neighbours (2i, 2i + 1), as in GGUF's llama."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Layer(nn.Module):
    """One block. Rows are flat, (sequences * positions, dim); only attention sees sequences."""

    def __init__(self, shape):
        super().__init__()
        s = self.shape = shape
        q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        self.attn_norm = Norm(s.dim, s.eps)
        self.attn_q = nn.Linear(s.dim, q, bias=False)
        self.attn_k = nn.Linear(s.dim, kv, bias=False)
        self.attn_v = nn.Linear(s.dim, kv, bias=False)
        self.attn_output = nn.Linear(q, s.dim, bias=False)
        self.ffn_norm = Norm(s.dim, s.eps)
        self.ffn_gate = nn.Linear(s.dim, s.ffn, bias=False)
        self.ffn_up = nn.Linear(s.dim, s.ffn, bias=False)
        self.ffn_down = nn.Linear(s.ffn, s.dim, bias=False)

    def forward(self, x, cos, sin, mask, batch):
        x = x + self.attn_output(self.attend(self.attn_norm(x).bfloat16(), cos, sin, mask, batch))
        h = self.ffn_norm(x).bfloat16()
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def attend(self, h, cos, sin, mask, batch):
        """Plain products: on this CPU they are several times faster backwards than the fused attention."""
        s = self.shape
        q = turn(self.attn_q(h).unflatten(-1, (s.heads, s.head_dim)), cos, sin).bfloat16()
        k = turn(self.attn_k(h).unflatten(-1, (s.kv_heads, s.head_dim)), cos, sin).bfloat16()
        v = self.attn_v(h).unflatten(-1, (s.kv_heads, s.head_dim))
        q, k, v = (t.unflatten(0, (batch, -1)).transpose(1, 2) for t in (q, k, v))
        repeat = s.heads // s.kv_heads
        k, v = (t.repeat_interleave(repeat, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * s.head_dim**-0.5 + mask
        mixed = scores.float().softmax(-1).bfloat16() @ v
        return mixed.transpose(1, 2).flatten(0, 1).flatten(-2)


class Mini(nn.Module):
    """Ids (sequences, positions) to the mean loss, or to logits."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.dim)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.dim, shape.eps)
        cos, sin = rope(shape, shape.context)
        mask = torch.full((shape.context, shape.context), float("-inf")).triu(1)
        self.register_buffer("mask", mask.bfloat16(), persistent=False)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                scale = 0.02 if "embed" in name else weight.shape[1] ** -0.5
                if name.endswith(("attn_output.weight", "ffn_down.weight")):
                    scale /= (2 * shape.layers) ** 0.5
                nn.init.normal_(weight, std=scale)

    def hidden(self, ids):
        batch, positions = ids.shape
        cos = self.cos[:positions].repeat(batch, 1)
        sin = self.sin[:positions].repeat(batch, 1)
        mask = self.mask[:positions, :positions]
        x = self.embed(ids.flatten())
        for layer in self.layers:
            x = layer(x, cos, sin, mask, batch)
        return self.norm(x)

    def forward(self, ids, rows=None):
        """Logits (rows or all, vocab)."""
        h = self.hidden(ids)
        if rows is not None:
            h = h[rows]
        return F.linear(h.bfloat16(), self.embed.weight)
