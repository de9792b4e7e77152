"""Porter's stemmer with a memory: the same words come again and again."""

from functools import lru_cache

from nltk.stem.porter import PorterStemmer


class CachedStemmer:
    """Stems as nltk's `PorterStemmer` does, each word once."""

    def __init__(self) -> None:
        self.stem = lru_cache(maxsize=2**16)(PorterStemmer().stem)
