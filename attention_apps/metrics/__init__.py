"""Strings in, numbers out: a metric is a function of hypotheses and references that returns a `MetricResult`.

Names are imported on first use: the packages behind some of them take seconds.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
