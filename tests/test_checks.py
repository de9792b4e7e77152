from types import SimpleNamespace

import pytest

from attention_apps.checks import require, require_at_least, require_between, require_fraction

CONFIG = SimpleNamespace(units=4, rate=0.5, none=None)


def test_what_is_valid_passes():
    require(True, "units", "at least 1", 4)
    require_between(CONFIG, 4, 4, "units", "none")
    require_at_least(CONFIG, 4, "units", "none")
    require_fraction(CONFIG, "rate")


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: require_between(CONFIG, 5, 9, "rate", "units"), "`rate` must be between 5 and 9. Received: rate=0.5"),
        (lambda: require_between(CONFIG, 0, 3, "rate", "units"), "`units` must be between 0 and 3. Received: units=4"),
        (lambda: require_at_least(CONFIG, 5, "units"), "`units` must be at least 5. Received: units=4"),
        (lambda: require_fraction(SimpleNamespace(rate=1.0), "rate"), "`rate` must be at least 0 and less than 1"),
        (lambda: require_fraction(SimpleNamespace(rate=-0.1), "rate"), "`rate` must be at least 0 and less than 1"),
    ],
)
def test_an_error_names_the_limit_and_the_value(check, message):
    with pytest.raises(ValueError, match=message):
        check()


def test_a_long_value_is_cut():
    with pytest.raises(ValueError, match="Received: name='aaa") as error:
        require(False, "name", "short", "a" * 10_000)
    assert len(str(error.value)) < 300
    assert str(error.value).endswith("...")
