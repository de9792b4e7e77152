"""Write texts that a translator from English should be unsure of, one per line.

    python foreign_texts.py OUTPUT.txt

Sentences in other languages, random letters, and lines of Python code.
"""

import argparse
import random
import string
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from other_languages import SENTENCES

_NUM_RANDOM = 25
_MIN_CODE_LENGTH = 30


def other_languages() -> list[str]:
    return [sentence for text in SENTENCES.values() for sentence in text.splitlines()]


def random_letters(seed: int = 0) -> list[str]:
    """Return lines of four to ten words, each of three to nine random letters."""
    chance = random.Random(seed)

    def word() -> str:
        return "".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9)))

    return [" ".join(word() for _ in range(chance.randint(4, 10))) for _ in range(_NUM_RANDOM)]


def code() -> list[str]:
    """Return the longer lines of this file."""
    lines = (line.strip() for line in Path(__file__).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if len(line) >= _MIN_CODE_LENGTH]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    lines = [*other_languages(), *random_letters(), *code()]
    parser.parse_args().output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
