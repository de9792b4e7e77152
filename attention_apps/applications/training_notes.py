"""What a training has to say about itself: its plan before the first step, and its part of the model's card."""

from collections.abc import Sequence
from dataclasses import dataclass

from attention_apps.data import Batches
from attention_apps.training.config import TrainingConfig, to_toml
from attention_apps.training.fine_tuning import count_steps
from attention_apps.training.trainer import History


@dataclass(frozen=True)
class TrainingNotes:
    """The data of a training, and the texts about it.

    Attributes:
        start: name of the preset that is fine-tuned, or `None` for a new model.
        data: name of the manifest.
        num_examples: how many examples of it are trained on.
        num_validation: how many examples the validation has.
    """

    start: str | None
    data: str
    num_examples: int
    num_validation: int

    def plan(self, config: TrainingConfig, batches: Batches) -> str:
        """The settings that were chosen by the size of the data, in one line."""
        steps = count_steps(batches, config)
        average = "no averaging" if config.ema is None else f"averaging with decay {config.ema:.4g}"
        return (
            f"{self._examples()}: {config.epochs} epochs, {steps:,} steps, warm-up of {config.warmup_steps:,}, "
            f"{average}, a validation every {config.validate_every} {config.validate_unit}"
        )

    def outcome(self, histories: Sequence[History]) -> str:
        """What came of it, in one line."""
        last = histories[-1]
        text = f"{last.steps:,} steps, ended by {last.stopped_by}"
        if last.metric is None or last.best is None:
            return text
        first = histories[0].validations[0]
        if all(history.best_step == 0 for history in histories):
            return f"{text}; nothing beat the starting weights ({last.metric} {last.best:.4f}), so they were kept"
        before = f", {first[last.metric]:.4f} before" if first["step"] == 0 else ""
        return f"{text}; {last.metric} {last.best:.4f} at step {last.best_step:,}{before}"

    def card(self, config: TrainingConfig, histories: Sequence[History]) -> str:
        """The section of the card: data, steps, scores before and after, settings."""
        start = "from scratch" if self.start is None else f"from `{self.start}`"
        minutes = sum(history.seconds for history in histories) / 60
        lines = [
            "",
            "## Training",
            "",
            f"- {self._examples()} of `{self.data}`, {start}",
            f"- {minutes:,.1f} minutes; {self.outcome(histories)}",
            "",
            *_score_table(histories),
        ]
        return "\n".join([*lines, "Settings:", "", "```toml", to_toml(config).strip(), "```", ""])

    def _examples(self) -> str:
        validation = f"{self.num_validation:,} for validation" if self.num_validation else "no validation"
        return f"{self.num_examples:,} training examples, {validation}"


def _score_table(histories: Sequence[History]) -> list[str]:
    """The scores before the first step, if there are any, and of the weights that were kept."""
    validations = [entry for history in histories for entry in history.validations]
    kept = next((entry for entry in reversed(validations) if entry["step"] == histories[-1].best_step), None)
    if kept is None:
        return []
    names = [name for name in kept if name not in ("step", "epoch")]
    rows = [("kept", kept)]
    if validations[0]["step"] == 0:
        rows.insert(0, ("before", validations[0]))
    lines = [f"| validation | step | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for title, entry in rows:
        scores = " | ".join(f"{entry[name]:.4f}" for name in names)
        lines.append(f"| {title} | {entry['step']:.0f} | {scores} |")
    return [*lines, ""]
