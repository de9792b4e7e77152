"""Measure whether a compressor keeps the words that a verb depends on: "not", "no", "allegedly" and quantities.

    python qualifiers.py [PRESET] [--show]

Builds 200 sentences, each with one such word. It is lost if the compression keeps the verb and deletes the word.
`--show` prints the sentences in which that happened.
"""

import argparse
import itertools
import json
import random
from typing import Any, NamedTuple

COUNT = 200

_SUBJECTS = (
    "The finance minister",
    "A spokeswoman for the airline",
    "The city council of Larkhill",
    "The owner of the factory",
    "A member of the committee",
    "The company, which is based in Westmere,",
    "The head coach of the team",
    "A former mayor",
)
_ENDINGS = (
    "after a long meeting on Tuesday",
    "in the southern town of Brookfield",
    ", according to a report that was published this week",
    "despite protests by residents",
    "during a visit to the region last month",
)
# Each with the verb and the words that must stay with it.
_PHRASES = (
    ("did not resign", "resign", ("not",)),
    ("didn't approve the plan", "approve", ("n't",)),
    ("has not been charged with fraud", "charged", ("not",)),
    ("will not close the old bridge", "close", ("not",)),
    ("found no evidence of a leak", "found", ("no",)),
    ("has no plans to sell the stadium", "has", ("no",)),
    ("never signed the contract", "signed", ("never",)),
    ("allegedly stole documents from the office", "stole", ("allegedly",)),
    ("was allegedly attacked by a guest", "attacked", ("allegedly",)),
    ("has reportedly rejected the offer", "rejected", ("reportedly",)),
    ("paid $ 3 million for the land", "paid", ("3", "million")),
    ("lost 40 percent of the shares", "lost", ("40", "percent")),
    ("fired 250 workers", "fired", ("250",)),
    ("bought two old ships", "bought", ("two",)),
    ("raised taxes by 5 percent", "raised", ("5", "percent")),
    ("won't sign the agreement", "sign", ("n't",)),
    ("was not injured", "injured", ("not",)),
    ("is possibly planning a sale", "planning", ("possibly",)),
    ("hired more than 60 engineers", "hired", ("60",)),
    ("donated 1,200 books to schools", "donated", ("1,200",)),
)


class Sentence(NamedTuple):
    """A text, a verb of it, and the words that may not be deleted if the verb stays."""

    text: str
    verb: str
    qualifiers: tuple[str, ...]


def make_sentences(count: int = COUNT, seed: int = 0) -> list[Sentence]:
    """Return different sentences in random order."""
    frames = random.Random(seed).sample(list(itertools.product(_SUBJECTS, _PHRASES, _ENDINGS)), count)
    return [
        Sentence(f"{subject} {phrase} {ending}.".replace(" ,", ",").replace("$ ", "$"), verb, qualifiers)
        for subject, (phrase, verb, qualifiers), ending in frames
    ]


def is_lost(sentence: Sentence, compression: Any) -> bool:
    """Whether the compression keeps the verb and deletes one of its qualifiers."""
    pairs = zip(compression.source_tokens, compression.kept, strict=True)
    kept = {token for token, is_kept in pairs if is_kept}
    return sentence.verb in kept and not kept.issuperset(sentence.qualifiers)


def main() -> None:
    from attention_apps import SentenceCompressor

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", metavar="NAME|FOLDER")
    parser.add_argument("--show", action="store_true", help="print the sentences that lost a word")
    options = parser.parse_args()
    sentences = make_sentences()
    compressions = SentenceCompressor.from_preset(options.preset).compress([sentence.text for sentence in sentences])
    lost = [is_lost(*pair) for pair in zip(sentences, compressions, strict=True)]
    for sentence, compression, is_bad in zip(sentences, compressions, lost, strict=True):
        if is_bad and options.show:
            print(f"{sentence.text}\n-> {compression.text}")
    print(json.dumps({"sentences": len(sentences), "lost": sum(lost) / len(sentences)}))


if __name__ == "__main__":
    main()
