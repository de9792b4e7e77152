"""Metrics: functions of hypotheses and references that return a `MetricResult`.

Names are imported on first use, because some of the packages behind them take seconds to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
