"""Data sets: manifests, the data check, batches, and the caches of what is computed once for each source file.

Names are imported on first use. Everything except `Batches` works without TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
