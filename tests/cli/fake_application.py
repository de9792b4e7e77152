"""An application that needs no model: it spells words backwards."""

from dataclasses import dataclass
from pathlib import Path

from attention_apps.applications.application import Application
from attention_apps.applications.parts import OutputOptions
from attention_apps.decoding.options import DecodingOptions

seen = {"options": None}


@dataclass
class Reversed:
    text: str
    score: float
    alternatives: list
    error: str | None = None
    confidence: float = 0.75
    unsure: bool = False

    def plot(self, path):
        Path(path).write_text(f"picture of {self.text}")

    def to_html(self, path):
        Path(path).write_text(f"page of {self.text}")


@dataclass(frozen=True)
class Config:
    decoding: DecodingOptions
    output: OutputOptions


class Reverser:
    task = "reversal"
    split_options = Application.split_options

    def __init__(self):
        self.config = Config(DecodingOptions(beam_size=4, num_best=2, max_length=9, min_length=3), OutputOptions())

    @classmethod
    def from_preset(cls, name=None):
        return cls()

    def run(self, items, quiet, **options):
        search, _ = self.split_options(options)
        seen["options"] = search
        return self._reverse(items, search)

    def _reverse(self, items, search):
        for item in items:
            text = item.decode() if isinstance(item, bytes) else item
            if "bad" in text:
                yield Reversed("", float("-inf"), [], error="It is bad")
            else:
                best = text[::-1]
                score = float("-inf") if text == "blank" else -0.5
                alternatives = [(best, score), (best.upper(), -1.5)][: search.num_best]
                yield Reversed(best, score, alternatives, unsure=text == "odd")
