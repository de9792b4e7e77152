"""How the results of all applications show themselves."""

import html
from typing import Any

# Letters of a text that the `repr` of its result shows, and the height of a page in a notebook.
_MAX_SHOWN = 60
_NOTEBOOK_HEIGHT = "22em"


class Result:
    """A text with `score`, `confidence`, `unsure` and `error`, `plot(path=None)` and `to_html(path=None)`.

    Each task has a subclass, a dataclass made with `repr=False`.
    """

    def __repr__(self: Any) -> str:
        name = type(self).__name__
        if self.error is not None:
            return f"{name}(error={_shortened(self.error)})"
        unsure = ", unsure" if self.unsure else ""
        return f"{name}({_shortened(self.text)}, score={self.score:.3g}, confidence={self.confidence:.2f}{unsure})"

    def _repr_html_(self: Any) -> str | None:
        """Returns the HTML that a notebook shows: the page in its own frame, so that their styles do not mix."""
        if self.error is not None:
            return None
        page = html.escape(self.to_html())
        return f'<iframe srcdoc="{page}" style="width: 100%; height: {_NOTEBOOK_HEIGHT}; border: 0"></iframe>'


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…")
