"""Texts like those of AN4, from a small grammar: spelled names, codes, numbers, dates, addresses and commands."""

import numpy as np

_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
_TEENS = ("TEN", "ELEVEN", "TWELVE", "THIRTEEN", "FOURTEEN", "FIFTEEN", "SIXTEEN", "SEVENTEEN", "EIGHTEEN", "NINETEEN")
_TENS = ("TWENTY", "THIRTY", "FORTY", "FIFTY", "SIXTY", "SEVENTY", "EIGHTY", "NINETY")
_MONTHS = (
    "JANUARY",
    "FEBRUARY",
    "MARCH",
    "APRIL",
    "MAY",
    "JUNE",
    "JULY",
    "AUGUST",
    "SEPTEMBER",
    "OCTOBER",
    "NOVEMBER",
    "DECEMBER",
)
_ORDINALS = (
    *("FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH", "SIXTH", "SEVENTH", "EIGHTH", "NINTH", "TENTH"),
    *("ELEVENTH", "TWELFTH", "THIRTEENTH", "FOURTEENTH", "FIFTEENTH", "SIXTEENTH", "SEVENTEENTH", "EIGHTEENTH"),
    *("NINETEENTH", "TWENTIETH"),
)
_COMMANDS = ("YES", "NO", "GO", "HELP", "START", "STOP", "REPEAT", "ENTER", "ERASE", "RUBOUT")
_EDITS = ("ENTER", "ERASE", "RUBOUT")
_STREETS = ("STREET", "AVENUE", "ROAD", "DRIVE", "LANE", "COURT", "PLACE")
# What is spelled: names of people and places, as anyone could think of them.
_NAMES = (
    *("ADAM", "AGNES", "ALAN", "ALICE", "ADA", "ANDREW", "BARBARA", "BEN", "BRUNO", "CAROL", "CEDRIC", "CLARA"),
    *("DENNIS", "DIANA", "EDGAR", "ELLEN", "EMILY", "ERNEST", "FRANK", "GEORGE", "GRACE", "HARRY", "HELEN", "HENRY"),
    *("IRENE", "JACK", "JANE", "JULIA", "KATE", "KEVIN", "LAURA", "LEO", "LYDIA", "LOUIS", "MARTHA", "MAX", "NANCY"),
    *("NICK", "NORA", "OLIVER", "OSCAR", "PAUL", "PETER", "QUENTIN", "RALPH", "ROSE", "RUTH", "SIMON", "SUSAN"),
    *("TOBIAS", "URSULA", "VERA", "VICTOR", "WALTER", "WENDY", "XAVIER", "YVONNE", "ZACHARY", "ZOE", "FELIX"),
    *("ABBOTT", "BAKER", "BENNETT", "BRODSKY", "CARVER", "COLLINS", "DAWSON", "DIXON", "ELLIS", "FISCHER", "FLYNN"),
    *("GRIFFIN", "HAWKINS", "HOLLOWAY", "HUDSON", "INGRAM", "JENKINS", "KAUFMAN", "KOWALSKI", "LAMBERT", "LOPEZ"),
    *("MACKENZIE", "MARQUEZ", "MURPHY", "NAKAMURA", "NGUYEN", "OBRIEN", "PETROV", "QUIGLEY", "ROSSI", "SCHWARTZ"),
    *("SINGH", "TUCKER", "UNDERWOOD", "VAUGHN", "WEISS", "WOZNIAK", "YOUNG", "ZIMMERMAN", "AKRON", "BOSTON", "BUTLER"),
    *("CLEVELAND", "DAYTON", "DENVER", "ERIE", "HARRISBURG", "JOHNSTOWN", "LANCASTER", "MONROE", "OAKLAND", "OXFORD"),
    *(
        "READING",
        "SALEM",
        "SCRANTON",
        "TOLEDO",
        "UTICA",
        "WHEELING",
        "YORK",
        "MULBERRY",
        "WALNUT",
        "CHESTNUT",
        "HAWTHORN",
    ),
    *("FOREST", "HILL", "LIBERTY", "PENN", "JEFFERSON", "BEDFORD", "FAIRFAX", "JUNIPER", "KENMORE", "VALLEY"),
)

# How often each kind of text comes.
_KINDS = {
    "name": 0.25,
    "letters": 0.15,
    "code": 0.2,
    "digits": 0.14,
    "number": 0.1,
    "date": 0.05,
    "address": 0.05,
    "command": 0.06,
}


def random_text(random: np.random.Generator) -> str:
    """A text in capital letters; what is spelled has spaces between its letters."""
    weights = np.array([*_KINDS.values()])
    kind = random.choice([*_KINDS], p=weights / weights.sum())
    return " ".join(_MAKERS[kind](random))


def _name(random: np.random.Generator) -> list[str]:
    return list(_one_of(random, _NAMES))


def _letters(random: np.random.Generator) -> list[str]:
    return list(random.choice(_LETTERS, int(random.integers(1, 8))))


def _code(random: np.random.Generator) -> list[str]:
    """A few letters and a number, perhaps after a command."""
    edit = [_one_of(random, _EDITS)] if random.random() < 0.5 else []
    letters = random.choice(_LETTERS, int(random.integers(3, 6))) if random.random() < 0.75 else []
    return [*edit, *letters, *(_digits if random.random() < 0.3 else _number)(random)]


def _digits(random: np.random.Generator) -> list[str]:
    """Digits one by one, as in telephone numbers; zero is often called O."""
    names = ("OH" if random.random() < 0.6 else "ZERO", *_DIGITS[1:])
    size = int(random.choice([1, 2, 3, 5, 7, 10], p=[0.1, 0.15, 0.25, 0.25, 0.15, 0.1]))
    return [names[digit] for digit in random.integers(10, size=size)]


def _number(random: np.random.Generator) -> list[str]:
    """A number as a whole, or in groups: 9 23 63."""
    if random.random() < 0.3:
        return _large_number(random)
    groups = int(random.integers(1, 4))
    return [word for _ in range(groups) for word in _below_hundred(int(random.integers(1, 100)))]


def _large_number(random: np.random.Generator) -> list[str]:
    words = []
    if random.random() < 0.5:
        words += [*_below_hundred(int(random.integers(1, 100))), "THOUSAND"]
    if not words or random.random() < 0.6:
        words += [_DIGITS[random.integers(1, 10)], "HUNDRED"]
    if random.random() < 0.7:
        words += [*(["AND"] if random.random() < 0.4 else []), *_below_hundred(int(random.integers(1, 100)))]
    return words


def _below_hundred(number: int) -> list[str]:
    if number < 10:
        return [_DIGITS[number]]
    if number < 20:
        return [_TEENS[number - 10]]
    tens = _TENS[number // 10 - 2]
    return [tens] if number % 10 == 0 else [tens, _DIGITS[number % 10]]


def _date(random: np.random.Generator) -> list[str]:
    day = _day(int(random.integers(1, 32)))
    month = _one_of(random, _MONTHS)
    year = ["NINETEEN", *_below_hundred(int(random.integers(10, 100)))] if random.random() < 0.8 else []
    return [*([*day, "OF", month] if random.random() < 0.15 else [month, *day]), *year]


def _day(day: int) -> list[str]:
    if day <= 20:
        return [_ORDINALS[day - 1]]
    return ["THIRTIETH"] if day == 30 else [_TENS[day // 10 - 2], _ORDINALS[day % 10 - 1]]


def _address(random: np.random.Generator) -> list[str]:
    """A house number and a street, which is spelled or has a number."""
    number = _digits(random) if random.random() < 0.3 else _number(random)
    if random.random() < 0.7:
        return [*number, *_one_of(random, _NAMES), *_one_of(random, _STREETS)]
    return [*number, *_day(int(random.integers(1, 32))), *_one_of(random, _STREETS)]


def _command(random: np.random.Generator) -> list[str]:
    return [_one_of(random, _COMMANDS)]


def _one_of(random: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[random.integers(len(words))]


_MAKERS = {
    "name": _name,
    "letters": _letters,
    "code": _code,
    "digits": _digits,
    "number": _number,
    "date": _date,
    "address": _address,
    "command": _command,
}
