"""An application that needs no model: it turns words around."""

from dataclasses import dataclass
from pathlib import Path

from attention_apps.decoding.options import DecodingOptions

seen = {"options": None}


@dataclass
class Reversed:
    text: str
    score: float
    alternatives: list
    error: str | None = None

    def plot(self, path):
        Path(path).write_text(f"picture of {self.text}")

    def to_html(self, path):
        Path(path).write_text(f"page of {self.text}")


@dataclass
class Config:
    decoding: DecodingOptions


class Reverser:
    default_preset = "reverser"

    def __init__(self):
        self.config = Config(DecodingOptions(beam_size=4, num_best=2, max_length=9, min_length=3))

    @classmethod
    def from_preset(cls, name):
        if name != cls.default_preset:
            raise ValueError(f"`name` must be the name of a preset: reverser. Received: name={name!r}")
        return cls()

    @classmethod
    def load(cls, folder):
        raise ValueError(f"{folder}: SHA256SUMS is missing")

    def reversals(self, sources, options):
        seen["options"] = options
        for source in sources:
            text = source.decode() if isinstance(source, bytes) else source
            if "bad" in text:
                yield Reversed("", float("-inf"), [], error="It is bad")
            else:
                best = text[::-1]
                score = float("-inf") if text == "blank" else -0.5
                yield Reversed(best, score, [(best, score), (best.upper(), -1.5)][: options.num_best])
