"""Count n-grams."""

from collections import Counter
from collections.abc import Sequence


def count_ngrams(words: Sequence[str], max_order: int) -> list[Counter[tuple[str, ...]]]:
    """Count the n-grams of each order from 1 to `max_order`."""
    return [Counter(zip(*(words[start:] for start in range(order)), strict=False)) for order in range(1, max_order + 1)]
