from .batches import Batches
from .caches import FeatureCache, ProbeCache
from .data_check import DataCheck, DataReport
from .manifest import LineReader, Manifest, Row, group_rows, hold_out

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
