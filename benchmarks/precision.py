"""Scores a preset as it is and saved in 16 and 8 bits: what rounding its weights costs.

python benchmarks/precision.py show_attend_tell_flickr8k dev.jsonl
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from presets import load


def score_precisions(preset: str, data: Path, bits: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the scores and the size of the preset, first as it is, then in each number of bits."""
    application = load(preset)
    with tempfile.TemporaryDirectory() as folder:
        yield {"bits": "as it is", **_score(application, data, folder)}
        for number in bits:
            saved = Path(folder) / f"{number}_bits"
            application.save(saved, bits=number)
            size = sum(path.stat().st_size for path in saved.iterdir())
            yield {"bits": number, "megabytes": round(size / 1e6, 1), **_score(load(str(saved)), data, folder)}


def _score(application: Any, data: Path, cache: str) -> dict[str, float]:
    evaluation = application.evaluate(data, cache=cache, quiet=True)
    return {name: round(100 * result.score, 2) for name, result in evaluation.metrics.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", help="name or folder")
    parser.add_argument("data", type=Path, help="manifest: .csv, .tsv or .jsonl")
    parser.add_argument("--bits", type=int, nargs="+", default=[8], choices=(8, 16))
    options = parser.parse_args()
    for row in score_precisions(options.preset, options.data, options.bits):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
