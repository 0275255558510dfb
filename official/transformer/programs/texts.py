"""Sentences of two languages to train on, and the flags of a small network for them."""

import random
from pathlib import Path

WORDS = ("one two three four five six seven eight nine ten", "eins zwei drei vier fünf sechs sieben acht neun zehn")
FLAGS = ("--param_set=tiny", "--params_override=vocab_size=200,hidden_size=16,filter_size=32,num_hidden_layers=1")


def write_texts(folder: Path, name: str, count: int, seed: int) -> None:
    """Sentences of 1 to 8 words in two languages, word by word."""
    rng = random.Random(seed)
    languages = [words.split() for words in WORDS]
    sentences = [[rng.randrange(10) for _ in range(rng.randint(1, 8))] for _ in range(count)]
    for suffix, words in zip(("en", "de"), languages):
        text = "".join(" ".join(words[i] for i in sentence) + "\n" for sentence in sentences)
        (folder / f"{name}.{suffix}").write_text(text)
