"""The sound of MP4, M4A, WebM and other files that libsndfile does not read, through PyAV."""

from collections.abc import Iterator
from typing import Any, BinaryIO, Self

import numpy as np

# What a file begins with, from which byte on, and the name of ffmpeg's demuxer for it. Other formats are not read:
# playlists, for example, would make ffmpeg open further files.
_FORMATS = (
    (4, b"ftyp", "mov"),  # MP4, M4A, 3GP, QuickTime
    (4, b"moov", "mov"),
    (4, b"mdat", "mov"),
    (0, b"\x1aE\xdf\xa3", "matroska"),  # WebM
    (0, b"0&\xb2u\x8ef\xcf\x11", "asf"),  # WMA
    (0, b"#!AMR", "amr"),
    (0, b"\xff\xf1", "aac"),
    (0, b"\xff\xf9", "aac"),
)
_HEAD_BYTES = 16


class MediaError(ValueError):
    """The sound of a file cannot be decoded."""


class MediaFile:
    """The first sound track of a file, with as much of soundfile's interface as `read_audio` needs.

    Args:
        source: an open file; it is closed with this object.
        container: ffmpeg's name of the format, from `media_format`.
    """

    def __init__(self, source: BinaryIO, container: str):
        av = _import_av()
        self._source, self._errors = source, (av.FFmpegError, ValueError)
        try:
            self._container = av.open(source, format=container, mode="r")
            stream = next(iter(self._container.streams.audio), None)
            if stream is None:
                raise MediaError("it has no sound track")
            self.samplerate = int(stream.rate)
            seconds = float(stream.duration * stream.time_base) if stream.duration else 0.0
            self._resampler = av.AudioResampler(format="fltp", layout=stream.layout, rate=self.samplerate)
        except self._errors as error:
            raise MediaError(str(error)) from error
        self.frames = round(seconds * self.samplerate)
        self._pieces = self._decode(stream)

    def read(self, frames: int, dtype: str = "float32", always_2d: bool = True) -> np.ndarray:
        """The next samples, `(samples, channels)`, as many as a packet has; none at the end."""
        try:
            return next(self._pieces, np.zeros((0, 1), np.float32))
        except self._errors as error:
            raise MediaError(str(error)) from error

    def close(self) -> None:
        self._container.close()
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _decode(self, stream: Any) -> Iterator[np.ndarray]:
        for frame in self._container.decode(stream):
            for converted in self._resampler.resample(frame):
                if converted.samples:
                    yield converted.to_ndarray().T
        for converted in self._resampler.resample(None):
            if converted.samples:
                yield converted.to_ndarray().T


def media_format(source: BinaryIO) -> str | None:
    """ffmpeg's name of the format of an open file, or `None` for one that is not known; rewinds the file."""
    source.seek(0)
    head = source.read(_HEAD_BYTES)
    source.seek(0)
    return next((name for start, mark, name in _FORMATS if head[start:].startswith(mark)), None)


def _import_av() -> Any:
    try:
        import av
    except ImportError:
        raise MediaError("it is read with the package av: `pip install 'attention_apps[media]'`") from None
    return av
