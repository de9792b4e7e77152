"""What all contenders of a benchmark have in common."""

from workloads import END, START

# Of the optimizer: Adam after clipping to a global norm, as this library's training loop does it.
LEARNING_RATE = 1e-3
CLIP_NORM = 5.0
BETAS = (0.9, 0.999)
EPSILON = 1e-7

# Of the search: nothing ends before the longest length, so that all contenders make the same number of steps.
MAX_LENGTH = 20
NEVER_WRITTEN = (0, START, END)
