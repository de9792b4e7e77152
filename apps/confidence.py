"""Chooses the threshold of a preset's confidence on data that it was not trained on.

    python confidence.py PRESET --good GOOD.tsv --foreign NOISES.tsv --foreign LANGUAGES.tsv

`--good` names data as the preset was made for, with the texts that people wrote; `--foreign` data that it must not be
sure of, whose texts are not read. Prints a line of JSON for each: how many answers are empty and how many unsure, at
the threshold of the preset and at the highest one for which at most `--max-unsure` of the good answers are unsure. For
the good data it also prints the scores of confident and of unsure answers, and the `slope` and `offset` that make the
confidence predict the score of an answer best.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from calibration import fit

from attention_apps.applications import load

_TINY = 1e-6


def choose_threshold(good: np.ndarray, max_unsure: float) -> float:
    """The highest threshold, in hundredths, with at most a share `max_unsure` of confidences below it."""
    allowed = math.floor(max_unsure * len(good))
    return math.floor(100 * float(np.sort(good)[min(allowed, len(good) - 1)])) / 100


def answers(application: Any, path: Path, limit: int | None) -> tuple[list[Any], list[str]]:
    """The results for a manifest, and the texts that people wrote."""
    source, target = application.parts.examples.columns
    rows = list(application.manifest(path).rows())
    rows = rows[:: max(1, len(rows) // limit)][:limit] if limit else rows
    return list(application.run(row[source] for row in rows)), [row[target] for row in rows]


def rejected(results: list[Any], threshold: float) -> dict[str, float]:
    """The shares of answers that are empty, and that are empty or below the threshold."""
    empty = np.array([not result.text for result in results])
    unsure = empty | (np.array([result.confidence for result in results]) < threshold)
    return {"empty": round(float(empty.mean()), 4), "empty_or_unsure": round(float(unsure.mean()), 4)}


def quality_of(application: Any, results: list[Any], references: list[str]) -> np.ndarray:
    """How good each answer is, from 0 to 1, by the first metric of the task."""
    from attention_apps.training import lower_is_better

    texts = [result.text for result in results]
    metrics = application.parts.examples.metrics(texts, [[one] for one in references], [""] * len(texts))
    name, metric = next(iter(metrics.items()))
    scores = np.clip(metric.items, 0, 1)
    return 1 - scores if lower_is_better(name) else scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", metavar="NAME|FOLDER")
    parser.add_argument("--good", type=Path, required=True, help="manifest of data as the preset was made for")
    parser.add_argument(
        "--foreign", type=Path, action="append", default=[], help="manifest; may be given several times"
    )
    parser.add_argument("--max-unsure", type=float, default=0.02, help="share of good answers (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="rows of each manifest (default: all)")
    options = parser.parse_args()
    application = load(options.preset)
    results, references = answers(application, options.good, options.limit)
    confidence = np.array([result.confidence for result in results])
    quality = quality_of(application, results, references)
    threshold = choose_threshold(confidence, options.max_unsure)
    slope, offset = fit(confidence, quality)
    own = application.config.confidence.threshold
    for name, limit in (("preset", own), ("chosen", threshold)):
        is_sure = confidence >= limit
        scores = {
            key: round(float(quality[rows].mean()), 4) if rows.any() else None
            for key, rows in (("quality_sure", is_sure), ("quality_unsure", ~is_sure))
        }
        print(
            json.dumps(
                {
                    "data": str(options.good.name),
                    "threshold": f"{limit:g} ({name})",
                    "items": len(results),
                    **rejected(results, limit),
                    **scores,
                }
            )
        )
    calibrated = 1 / (1 + np.exp(-(slope * np.log(confidence / (1 - confidence + _TINY) + _TINY) + offset)))
    print(
        json.dumps(
            {
                "slope": round(slope, 3),
                "offset": round(offset, 3),
                "mean_quality": round(float(quality.mean()), 4),
                "mean_confidence": round(float(confidence.mean()), 4),
                "mean_calibrated": round(float(calibrated.mean()), 4),
            }
        )
    )
    for path in options.foreign:
        results, _ = answers(application, path, options.limit)
        for name, limit in (("preset", own), ("chosen", threshold)):
            print(
                json.dumps(
                    {
                        "data": path.name,
                        "threshold": f"{limit:g} ({name})",
                        "items": len(results),
                        **rejected(results, limit),
                    }
                )
            )


if __name__ == "__main__":
    main()
