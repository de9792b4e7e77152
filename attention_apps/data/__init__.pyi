from .batches import Batches
from .data_check import DataCheck
from .data_report import DataReport
from .feature_cache import FeatureCache
from .line_reader import LineReader
from .manifest import Manifest, Row, group_rows, hold_out
from .probe_cache import ProbeCache

__all__ = [
    "Batches",
    "DataCheck",
    "DataReport",
    "FeatureCache",
    "LineReader",
    "Manifest",
    "ProbeCache",
    "Row",
    "group_rows",
    "hold_out",
]
