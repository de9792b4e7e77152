"""Read recordings from files, bytes and arrays as mono audio of 16,000 samples per second."""

import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr

SAMPLE_RATE = 16_000
# A lower rate would turn a small file into hours of audio.
LOWEST_RATE, HIGHEST_RATE = 4_000, 384_000
MAX_SECONDS = 3600.0

# Samples decoded at a time. A damaged file keeps all whole pieces before the damage.
_PIECE = 4096
MAX_CHANNELS = 32
# Integers stored as floats stay below this limit. A larger value is not audio.
LARGEST_SAMPLE = 2.0**31
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_URL = re.compile(r"[a-z][a-z0-9+.-]+://|data:", re.IGNORECASE)

Audio = str | os.PathLike | bytes | np.ndarray


class _Source(io.BufferedReader):
    """A file in which no seek fails. After a failure in damaged files, cffi would print a traceback and continue."""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        try:
            return super().seek(offset, whence)
        except (OSError, ValueError):
            return self.tell()


class _SoundFile(soundfile.SoundFile):
    """A sound file that is read sequentially. soundfile's seek after each piece corrupts MP3 files."""

    def __init__(self, source: BinaryIO):
        self._source = source
        super().__init__(source)

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        super().close()
        self._source.close()


def read_audio(audio: Audio, sample_rate: float | None = None, max_seconds: float = MAX_SECONDS) -> np.ndarray:
    """Read a recording, average its channels and resample it to `SAMPLE_RATE`.

    Any length above zero is accepted, even one too short for a word. Clipping, silence and float samples beyond 1 are
    accepted too, because the features ignore loudness. A file that is damaged in the middle is read up to the damage,
    with a warning.

    Args:
        audio: a path or the bytes of a file (WAV, FLAC, Ogg, Opus, MP3, AIFF or another format of libsndfile; with the
            extra `media` also M4A, MP4, WebM, WMA and AMR), or an array `(samples,)` or `(samples, channels)` of floats
            from -1 to 1 or of full-range integers.
        sample_rate: the rate of an array. Files state their own.
        max_seconds: the longest recording to accept. `audio_blocks` has no such limit.

    Returns:
        `(samples,)`, float32.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the input is not a recording, has no samples, has NaN or infinite samples, lasts more than
            `max_seconds`, or has a rate below `LOWEST_RATE` or above `HIGHEST_RATE`. The message names the file.
    """
    blocks, seconds = [], 0.0
    for block in audio_blocks(audio, sample_rate):
        blocks.append(block)
        seconds += len(block) / SAMPLE_RATE
        if seconds > max_seconds:
            raise ValueError(f"{_name(audio)} is too long: it lasts more than the limit of {max_seconds:g} s")
    return np.concatenate(blocks)


def audio_blocks(audio: Audio, sample_rate: float | None = None, block_seconds: float = 30.0) -> Iterator[np.ndarray]:
    """Read a recording of any length as `read_audio` does, in blocks of about `block_seconds` and bounded memory.

    Errors in the file or the rate are raised at once, errors in samples when their block is read.
    """
    name = _name(audio)
    if isinstance(audio, (str, os.PathLike, bytes, bytearray, memoryview)):
        if sample_rate is not None:
            raise ValueError(f"`sample_rate` is for arrays; {name} states its own. Received: sample_rate={sample_rate}")
        file = _open(audio, name)
        rate, pieces = file.samplerate, _decode(file, name)
    else:
        rate, pieces = sample_rate, _cut(_check_array(np.asarray(audio)))
    rate = _check_rate(rate, name)
    blocks = _join(pieces, max(round(block_seconds * rate), 1))
    return _not_empty(_resample(_check_samples(blocks, rate, name), rate), name)


def audio_seconds(path: str | os.PathLike) -> float:
    """Decode a whole file in bounded memory and return its duration. Raises where `read_audio` would."""
    name = _name(path)
    with closing(_open(path, name)) as file:
        rate = _check_rate(file.samplerate, name)
        pieces = _not_empty(_check_samples(_decode(file, name), rate, name), name)
        return sum(map(len, pieces)) / rate


def header_seconds(path: str | os.PathLike) -> float:
    """Return the duration that a file's header states, without decoding."""
    with closing(_open(path, _name(path))) as file:
        return file.frames / file.samplerate


def _name(audio: Audio) -> str:
    if isinstance(audio, (str, os.PathLike)):
        return str(audio)
    is_bytes = isinstance(audio, (bytes, bytearray, memoryview))
    return "The recording given as bytes" if is_bytes else "The audio array"


def _open(audio: str | os.PathLike | bytes, name: str) -> "_SoundFile | MediaFile":
    size = _file_size(audio) if isinstance(audio, (str, os.PathLike)) else len(audio)
    if not size:
        raise ValueError(f"{name} is empty: it has no bytes")
    # Opened by descriptor, so that libsndfile detects the format from the contents, not from the file name.
    raw: Any
    if isinstance(audio, (str, os.PathLike)):
        raw = io.FileIO(os.open(audio, _OPEN_FLAGS))
    else:
        raw = io.BytesIO(audio)
    source = _Source(raw)
    try:
        container = media_format(source)
        return _SoundFile(source) if container is None else MediaFile(source, container)
    except (soundfile.LibsndfileError, MediaError) as error:
        source.close()
        reason = getattr(error, "error_string", str(error))
        raise ValueError(f"{name} is not a recording, has an unknown format, or is damaged ({reason})") from error


def _file_size(path: str | os.PathLike) -> int:
    if _URL.match(str(path)):
        raise ValueError(f"URLs are not supported; download the recording and pass its path or bytes. Received: {path}")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"Audio file not found: {path}")
    if not path.is_file():
        raise ValueError(f"{path} is a folder or a device, not an audio file")
    return path.stat().st_size


def _decode(file: "_SoundFile | MediaFile", name: str) -> Iterator[np.ndarray]:
    """Yield mono pieces. Stops at damage with a warning, or raises if nothing precedes the damage."""
    count = 0
    with closing(file):
        while True:
            try:
                piece = file.read(_PIECE, dtype="float32", always_2d=True)
            except (soundfile.LibsndfileError, MediaError) as error:
                if not count:
                    raise ValueError(f"{name} is damaged: nothing can be decoded") from error
                at = count / file.samplerate
                warnings.warn(f"{name} is damaged after {at:.2f} s; the audio before that is used.", stacklevel=2)
                return
            if not len(piece):
                return
            count += len(piece)
            yield piece.mean(axis=1)


def _check_array(array: np.ndarray) -> np.ndarray:
    array = array[:, np.newaxis] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] > MAX_CHANNELS or not array.shape[1]:
        wanted = f"(samples,) or (samples, channels) with at most {MAX_CHANNELS} channels"
        raise ValueError(f"The audio array must be {wanted}. Received: shape={array.shape}")
    if array.dtype.kind != "f" and array.dtype not in (np.uint8, np.int8, np.int16, np.int32):
        raise ValueError(f"The audio array must hold floats, uint8, or int8 to int32. Received: {array.dtype}")
    return array


def _cut(array: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(array), _PIECE):
        piece = array[start : start + _PIECE]
        if array.dtype == np.uint8:
            piece = piece / np.float32(128) - 1
        elif array.dtype.kind == "i":
            piece = piece / np.float32(-float(np.iinfo(array.dtype).min))
        with np.errstate(over="ignore"):  # overflow becomes infinite, which `_check_samples` rejects
            yield piece.mean(axis=1).astype(np.float32)


def _check_rate(rate: float | None, name: str) -> float:
    if rate is None:
        raise ValueError("`sample_rate` must be given with an audio array. Received: sample_rate=None")
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        wanted = f"a sample rate from {LOWEST_RATE:,} to {HIGHEST_RATE:,} Hz"
        raise ValueError(f"{name} must have {wanted}. Received: {rate:,} Hz")
    return rate


def _join(pieces: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    waiting, count = [], 0
    for piece in pieces:
        waiting.append(piece)
        count += len(piece)
        if count >= size:
            yield np.concatenate(waiting)
            waiting, count = [], 0
    if waiting:
        yield np.concatenate(waiting)


def _check_samples(blocks: Iterable[np.ndarray], rate: float, name: str) -> Iterator[np.ndarray]:
    count = 0
    for block in blocks:
        wrong = ~(np.abs(block) <= LARGEST_SAMPLE)  # true for NaN as well
        if wrong.any():
            second = (count + int(np.argmax(wrong))) / rate
            raise ValueError(f"{name} has samples that are not finite numbers, the first at {second:.2f} s")
        count += len(block)
        yield block


def _resample(blocks: Iterable[np.ndarray], rate: float) -> Iterator[np.ndarray]:
    if rate == SAMPLE_RATE:
        yield from blocks
        return
    stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def _not_empty(blocks: Iterable[np.ndarray], name: str) -> Iterator[np.ndarray]:
    is_empty = True
    for block in blocks:
        if len(block):
            is_empty = False
            yield block
    if is_empty:
        raise ValueError(f"{name} has no samples")


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
        try:
            import av
        except ImportError:
            raise MediaError("it is read with the package av: `pip install 'attention_apps[media]'`") from None
        self._source, self._errors = source, (av.FFmpegError, ValueError)
        try:
            self._container = av.open(source, format=container, mode="r")
            stream = next(iter(self._container.streams.audio), None)
            if stream is None:
                raise MediaError("it has no sound track")
            self.samplerate = int(stream.rate)
            seconds = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else 0.0
            self._resampler = av.AudioResampler(format="fltp", layout=stream.layout, rate=self.samplerate)
        except self._errors as error:
            raise MediaError(str(error)) from error
        self.frames = round(seconds * self.samplerate)
        self._pieces = self._decode(stream)

    def read(self, frames: int, dtype: str = "float32", always_2d: bool = True) -> np.ndarray:
        """Return the next samples, `(samples, channels)`, as many as a packet has; none at the end."""
        try:
            return next(self._pieces, np.zeros((0, 1), np.float32))
        except self._errors as error:
            raise MediaError(str(error)) from error

    def close(self) -> None:
        self._container.close()
        self._source.close()

    def _decode(self, stream: Any) -> Iterator[np.ndarray]:
        for frame in self._container.decode(stream):
            for converted in self._resampler.resample(frame):
                if converted.samples:
                    yield converted.to_ndarray().T
        for converted in self._resampler.resample(None):
            if converted.samples:
                yield converted.to_ndarray().T


def media_format(source: BinaryIO) -> str | None:
    """Return ffmpeg's name of the format of an open file, or `None` if unknown. Rewind the file."""
    source.seek(0)
    head = source.read(_HEAD_BYTES)
    source.seek(0)
    return next((name for start, mark, name in _FORMATS if head[start:].startswith(mark)), None)
