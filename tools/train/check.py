"""Checks that what is learnt is what the server will see: `python check.py DATA`. The template renders as
`rendering.py` writes, and the vocabulary cuts as another implementation of `llama-bpe` does."""

import itertools
import json
import pathlib
import sys

import jinja2

import conversations
import rendering
import vocabulary
import words

HERE = pathlib.Path(__file__).parent
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def peer(vocab):
    """The same vocabulary in another implementation."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

    blank = vocabulary.BYTES[ord(" ")]
    model = models.BPE(vocab=vocab.ids, merges=[(blank, blank)], ignore_merges=True)
    other = Tokenizer(model)
    words_of = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    other.pre_tokenizer = pre_tokenizers.Sequence([words_of, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    other.add_special_tokens([AddedToken(token) for token in vocabulary.SPECIALS])
    return other


def main():
    data = pathlib.Path(sys.argv[1])
    vocab = vocabulary.Vocabulary.load(data / "vocabulary.json")
    words.know(vocab.words)
    other = peer(vocab)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string((HERE / "template.jinja").read_text())
    texts = 0
    for conversation in itertools.islice(conversations.stream(4242), 2000):
        last = len(conversation.turns) - 1
        rendered = template.render(
            messages=rendering.messages(conversation, last), tools=conversation.tools or None, add_generation_prompt=True,
            enable_thinking=conversation.thinking,
        )
        parts = rendering.parts(conversation)[-1]
        learnt = max(i for i, (_, is_learnt) in enumerate(parts) if is_learnt)
        written = "".join(text for text, _ in parts[:learnt])
        assert rendered == written, f"\n{rendered}\n---\n{written}"
        whole = "".join(text for text, _ in parts)
        assert vocab.encode(whole) == other.encode(whole, add_special_tokens=False).ids, whole
        texts += 1
    for text in ("Ärger, naïve façade!", "  two  blanks", "a_b-c d'e 12345", "\n\n x \t y", "日本 12 €"):
        assert vocab.encode(text) == other.encode(text, add_special_tokens=False).ids, text
    print(f"{texts} conversations are rendered and cut alike")


if __name__ == "__main__":
    main()
