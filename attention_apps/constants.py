"""Token ids and numbers that all parts of the package share."""

__all__ = ["END", "PADDING", "SPECIAL_TOKENS", "START", "UNKNOWN", "VERY_NEGATIVE"]

PADDING, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unk>")
# The score of something that must not be chosen. Finite, so that sums and differences of scores stay finite.
VERY_NEGATIVE = -1e9
