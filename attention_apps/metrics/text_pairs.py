"""Argument checks of all metrics."""

from collections.abc import Sequence

References = Sequence[str] | Sequence[Sequence[str]]


def check_texts(name: str, texts: Sequence[str]) -> list[str]:
    """Return the texts as a list. Raises an error if one is not a string."""
    if isinstance(texts, str):
        raise TypeError(f"`{name}` must be a list of strings. Received one string: {texts!r}")
    texts = list(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"`{name}[{index}]` must be a string. Received: {text!r}")
    return texts


def check_same_length(**texts: Sequence) -> None:
    """Check that both arguments have the same number of items, and at least one."""
    (first, some), (second, others) = texts.items()
    if len(some) != len(others):
        raise ValueError(
            f"`{first}` and `{second}` must have the same length. "
            f"Received: {len(some)} {first} and {len(others)} {second}"
        )
    if not some:
        raise ValueError(f"`{first}` must hold at least one item. Received: none")


def check_references(references: References) -> list[list[str]]:
    """Return one list of references per item. Raises an error if a reference is blank or an item has none."""
    if isinstance(references, str):
        raise TypeError(f"`references` must be a list. Received one string: {references!r}")
    lists = [[item] if isinstance(item, str) else list(item) for item in references]
    for index, item in enumerate(lists):
        check_texts(f"references[{index}]", item)
        if not item or not all(text.strip() for text in item):
            raise ValueError(f"`references[{index}]` must not be empty or blank. Received: {references[index]!r}")
    return lists


def check_pairs(hypotheses: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    """Return the hypotheses and the list of references of each."""
    hypotheses, references = check_texts("hypotheses", hypotheses), check_references(references)
    check_same_length(hypotheses=hypotheses, references=references)
    return hypotheses, references


def check_single_pairs(hypotheses: Sequence[str], references: References) -> tuple[list[str], list[str]]:
    """Return the hypotheses and the single reference of each, for metrics not defined for several."""
    hypotheses, references = check_pairs(hypotheses, references)
    for index, item in enumerate(references):
        if len(item) > 1:
            raise ValueError(f"`references[{index}]` must be one text for this metric. Received: {len(item)} texts")
    return hypotheses, [item[0] for item in references]
