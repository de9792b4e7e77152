"""Porter's stemmer with a cache."""

from functools import lru_cache


class CachedStemmer:
    """Stems words like nltk's `PorterStemmer`, and computes each stem once."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self.stem = lru_cache(maxsize=2**16)(PorterStemmer().stem)
