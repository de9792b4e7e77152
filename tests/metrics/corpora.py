"""Random captions for comparing metrics with their reference packages."""

import random

from hypothesis import strategies

WORDS = (
    "a",
    "the",
    "man",
    "men",
    "dog",
    "dogs",
    "runs",
    "running",
    "on",
    "in",
    "grass",
    "t-shirt",
    "café",
    "草",
    "3",
)
EDGE_HYPOTHESES = [
    "",
    "dog",
    "dog dog dog dog dog",
    "the man runs on the grass with a dog",
    "🙂",
    "naïve café",
]
EDGE_REFERENCES = [
    ["a dog runs", "the dog"],
    ["dog"],
    ["a dog", "dog dog"],
    ["the man runs on the grass with a dog"],
    ["a 🙂 face"],
    ["a naïve man in a café", "café"],
]

captions = strategies.lists(strategies.sampled_from(WORDS), max_size=9).map(" ".join)
reference_captions = strategies.lists(strategies.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
pairs = strategies.lists(
    strategies.tuples(captions, strategies.lists(reference_captions, min_size=1, max_size=4)),
    min_size=1,
    max_size=7,
)
single_pairs = strategies.lists(strategies.tuples(captions, reference_captions), min_size=1, max_size=7)


def random_corpus(size: int, num_references: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Hypotheses and references of 3 to 14 words."""
    generator = random.Random(seed)

    def caption() -> str:
        return " ".join(generator.choices(WORDS, k=generator.randint(3, 14)))

    return [caption() for _ in range(size)], [[caption() for _ in range(num_references)] for _ in range(size)]
