"""TensorFlow SavedModels: export, load, serve over REST, and call.

Names are imported on first use, because the client needs no TensorFlow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
