"""Training of a `Seq2Seq`: objectives, the loop, checkpoints, schedules, distribution.

Names are imported on first use. The configuration needs no TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
