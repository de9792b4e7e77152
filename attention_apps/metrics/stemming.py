"""Porter's stemmer with a memory: the same words come again and again."""

from functools import lru_cache


class CachedStemmer:
    """Stems as nltk's `PorterStemmer` does, each word once."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self.stem = lru_cache(maxsize=2**16)(PorterStemmer().stem)
