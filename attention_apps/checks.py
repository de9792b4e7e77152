"""Checks of arguments and configurations, which all raise the same kind of error."""

from typing import Any

# Values may come from a file of someone else, and be of any length.
_MAX_SHOWN = 200


def require(is_valid: bool, name: str, expected: str, value: Any) -> None:
    """Raise an error in the one form that the package uses.

    Example:
        require(beam_size >= 1, "beam_size", "at least 1", beam_size)
        # ValueError: `beam_size` must be at least 1. Received: beam_size=0
    """
    if not is_valid:
        received = repr(value)
        received = received if len(received) <= _MAX_SHOWN else f"{received[: _MAX_SHOWN - 3]}..."
        raise ValueError(f"`{name}` must be {expected}. Received: {name}={received}")


def require_between(config: Any, low: float, high: float, *names: str) -> None:
    """Check that attributes of a configuration lie between two numbers, both included. `None` is not checked."""
    for name in names:
        value = getattr(config, name)
        require(value is None or low <= value <= high, name, f"between {low} and {high}", value)


def require_at_least(config: Any, low: float, *names: str) -> None:
    """Check that attributes of a configuration are at least `low`. `None` is not checked."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value >= low, name, f"at least {low}", value)


def require_fraction(config: Any, *names: str) -> None:
    """Check that attributes of a configuration are at least 0 and less than 1, like a dropout rate."""
    for name in names:
        value = getattr(config, name)
        require(0 <= value < 1, name, "at least 0 and less than 1", value)
