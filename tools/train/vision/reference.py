"""The model's arithmetic in numpy (f32), from the two files alone.

    python -m vision.reference TEXT.gguf TOWER.gguf QUESTION [PICTURE …]
"""

import math
import sys

import gguf
import jinja2
import numpy as np
from PIL import Image

import vocabulary
from vision import drawing


class File:
    """Values and tensors of a GGUF file."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.tensors = {
            tensor.name: np.array(tensor.data, dtype=np.float32).reshape(tuple(reversed(tensor.shape.tolist()))) for tensor in reader.tensors
        }

    def __getitem__(self, name):
        return self.tensors[name]


def soft_max(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def heads(x, count):
    """(rows, heads * size) to (heads, rows, size)."""
    return x.reshape(len(x), count, -1).transpose(1, 0, 2)


class Tower:
    """SigLIP, pixel shuffle and a matrix, as SmolVLM has them."""

    def __init__(self, path):
        self.file = File(path)
        key = lambda name: self.file.fields[f"clip.vision.{name}"]
        self.patch, self.layers, self.heads = key("patch_size"), key("block_count"), key("attention.head_count")
        self.eps, self.shuffle = key("attention.layer_norm_epsilon"), key("projector.scale_factor")

    def affine(self, name, x):
        return x @ self.file[f"{name}.weight"].T + self.file[f"{name}.bias"]

    def norm(self, name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.eps))
        return x * self.file[f"{name}.weight"] + self.file[f"{name}.bias"]

    def rows(self, tile):
        """(64, 64, 3) bytes to (16, text dim)."""
        p, edge = self.patch, len(tile)
        side = edge // p
        x = (tile.astype(np.float32) / 255 - 0.5) / 0.5
        x = x.reshape(side, p, side, p, 3).transpose(0, 2, 4, 1, 3).reshape(side * side, 3 * p * p)
        x = x @ self.file["v.patch_embd.weight"].reshape(-1, 3 * p * p).T + self.file["v.patch_embd.bias"]
        x = x + self.file["v.position_embd.weight"]
        for layer in range(self.layers):
            x = self.layer(f"v.blk.{layer}.", x)
        x = self.norm("v.post_ln", x)
        s = self.shuffle
        x = x.reshape(side // s, s, side // s, s, -1).transpose(0, 2, 1, 3, 4).reshape((side // s) ** 2, -1)
        return x @ self.file["mm.model.fc.weight"].T

    def layer(self, at, x):
        h = self.norm(at + "ln1", x)
        q, k, v = (heads(self.affine(at + name, h), self.heads) for name in ("attn_q", "attn_k", "attn_v"))
        mixed = soft_max(q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(q.shape[-1]))) @ v
        x = x + self.affine(at + "attn_out", mixed.transpose(1, 0, 2).reshape(len(x), -1))
        h = self.affine(at + "ffn_up", self.norm(at + "ln2", x))
        h = h * 0.5 * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (h + np.float32(0.044715) * h**3)))
        return x + self.affine(at + "ffn_down", h)


class Text:
    """Llama, over all positions at once."""

    def __init__(self, path):
        self.file = File(path)
        key = lambda name: self.file.fields[f"llama.{name}"]
        self.layers, self.heads, self.kv_heads = key("block_count"), key("attention.head_count"), key("attention.head_count_kv")
        self.eps, self.base = key("attention.layer_norm_rms_epsilon"), key("rope.freq_base")
        tokens = self.file.fields["tokenizer.ggml.tokens"]
        kinds = self.file.fields["tokenizer.ggml.token_type"]
        specials = tuple(token for token, kind in zip(tokens, kinds) if kind != 1)
        letters = {letter: byte for byte, letter in vocabulary.BYTES.items()}
        words = [bytes(letters[letter] for letter in token).decode() for token in tokens[len(specials) + 256 :]]
        self.vocab = vocabulary.Vocabulary(words, specials)
        self.template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(self.file.fields["tokenizer.chat_template"])

    def norm(self, name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.eps)) * self.file[name]

    def logits(self, rows):
        """(positions, dim) of embeddings to (positions, vocab)."""
        x = rows
        half = self.file["blk.0.attn_q.weight"].shape[0] // self.heads // 2
        angles = np.arange(len(x))[:, None] * self.base ** (-np.arange(half) / half)
        turn = (np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
        for layer in range(self.layers):
            x = self.layer(f"blk.{layer}.", x, turn)
        return self.norm("output_norm.weight", x) @ self.file["token_embd.weight"].T

    def layer(self, at, x, turn):
        matrix = lambda name, x: x @ self.file[f"{at}{name}.weight"].T
        h = self.norm(at + "attn_norm.weight", x)
        q, k = turned(heads(matrix("attn_q", h), self.heads), turn), turned(heads(matrix("attn_k", h), self.kv_heads), turn)
        v = heads(matrix("attn_v", h), self.kv_heads)
        k, v = (np.repeat(part, self.heads // self.kv_heads, 0) for part in (k, v))
        scores = q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(q.shape[-1]))
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        x = x + matrix("attn_output", (soft_max(scores) @ v).transpose(1, 0, 2).reshape(len(x), -1))
        h = self.norm(at + "ffn_norm.weight", x)
        gate = matrix("ffn_gate", h)
        return x + matrix("ffn_down", gate / (1 + np.exp(-gate)) * matrix("ffn_up", h))


def turned(x, turn):
    """Pairs are neighbors (2i, 2i + 1)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = turn
    return np.stack((even * cos - odd * sin, even * sin + odd * cos), -1).reshape(x.shape)


class Model:
    """Both files."""

    def __init__(self, text, tower):
        self.text, self.tower = Text(text), Tower(tower)

    def prompt(self, messages, tools=None):
        """The rendered text, with the marks and rows of each picture."""
        from vision import dialogues

        return self.text.template.render(messages=messages, tools=tools, add_generation_prompt=True).replace("<image>", dialogues.IMAGE)

    def embedded(self, ids, pictures):
        rows = self.text.file["token_embd.weight"][ids]
        at = np.flatnonzero(np.array(ids) == self.text.vocab.ids["<image>"])
        if len(at):
            rows[at] = np.concatenate([self.tower.rows(drawing.tile(picture)) for picture in pictures])
        return rows

    def answer(self, messages, pictures, tools=None):
        """(text, prompt's ids, logits after the prompt)."""
        return self.continued(self.prompt(messages, tools), pictures)

    def continued(self, text, pictures, most=96):
        """The same for a rendered prompt. Greedy."""
        prompt = self.text.vocab.encode(text)
        rows = self.embedded(prompt, pictures)
        found, first = [], None
        end = self.text.file.fields["tokenizer.ggml.eos_token_id"]
        while len(found) < most:
            logits = self.text.logits(rows)[-1]
            first = logits if first is None else first
            token = int(logits.argmax())
            if token == end:
                break
            found.append(token)
            rows = np.concatenate([rows, self.text.file["token_embd.weight"][[token]]])
        letters = {letter: byte for byte, letter in vocabulary.BYTES.items()}
        tokens = [self.text.vocab.tokens[token] for token in found]
        written = b"".join(t.encode() if t in self.text.vocab.specials else bytes(letters[letter] for letter in t) for t in tokens)
        return written.decode(errors="replace"), prompt, first


def asked(question, pictures):
    """A message with its pictures first."""
    return [{"role": "user", "content": [*({"type": "image"} for _ in pictures), {"type": "text", "text": question}]}]


def main():
    text, tower, question, *paths = sys.argv[1:]
    pictures = [Image.open(path).convert("RGB") for path in paths]
    print(Model(text, tower).answer(asked(question, pictures), pictures)[0])


if __name__ == "__main__":
    main()
