"""The learning rate over the steps of a run."""

import math

import keras
from keras import ops

SCHEDULES = ("constant", "linear", "cosine", "inverse_sqrt")


@keras.saving.register_keras_serializable(package="attention_apps")
class WarmUpSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to `peak` over the first steps, then stays or falls.

    - `"constant"`: stays at the peak;
    - `"linear"`, `"cosine"`: falls to `final_fraction` of the peak at `total_steps`, in a line or half a cosine
      (Loshchilov and Hutter 2017, equation 5), and stays there;
    - `"inverse_sqrt"`: falls with the inverse square root of the step (Vaswani et al. 2017, equation 3).

    The step counts from 0 and the very first update already moves: step t has warmed up by (t + 1) / warm-up steps.

    Args:
        peak: the highest learning rate.
        warmup_steps: how many steps the rise takes; 0 for none.
        kind: one of the four above.
        total_steps: where `"linear"` and `"cosine"` end.
        final_fraction: what is left of the peak there.
    """

    def __init__(self, peak, warmup_steps=0, kind="constant", total_steps=None, final_fraction=0.0):
        if kind not in SCHEDULES:
            raise ValueError(f"`kind` must be one of {', '.join(SCHEDULES)}. Received: kind={kind!r}")
        if kind in ("linear", "cosine") and (total_steps is None or total_steps < 1):
            raise ValueError(f"`total_steps` must be given for a {kind} schedule. Received: total_steps={total_steps}")
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.kind = kind
        self.total_steps = total_steps
        self.final_fraction = final_fraction

    def __call__(self, step):
        step = ops.cast(step, "float32")
        warmed_up = ops.minimum(1.0, (step + 1.0) / max(self.warmup_steps, 1))
        return self.peak * warmed_up * self._decay(step)

    def _decay(self, step):
        if self.kind == "constant":
            return 1.0
        if self.kind == "inverse_sqrt":
            start = float(max(self.warmup_steps, 1))
            return ops.sqrt(start / ops.maximum(step + 1.0, start))
        progress = (step - self.warmup_steps) / max(self.total_steps - self.warmup_steps, 1)
        progress = ops.clip(progress, 0.0, 1.0)
        left = 1.0 - progress if self.kind == "linear" else 0.5 * (1.0 + ops.cos(math.pi * progress))
        return self.final_fraction + (1.0 - self.final_fraction) * left

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "kind": self.kind,
            "total_steps": self.total_steps,
            "final_fraction": self.final_fraction,
        }
