"""What the fuzz test spoils: tiny applications, their presets and exports, and valid files of every kind."""

import contextlib
import functools
import gzip
import hashlib
import io
import json
import shutil

import keras
import numpy as np
import pytest
import soundfile
from PIL import Image

from attention_apps.applications import (
    CaptionerConfig,
    CompressorConfig,
    ImageCaptioner,
    ImageEncoderConfig,
    SentenceCompressor,
    SpeechRecognizer,
    SummarizerConfig,
    TextSummarizer,
)
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASSES
from attention_apps.serving import LoadedModel
from attention_apps.training.config import read_config, to_dict, to_toml
from tests.applications.recognizers import LETTERS, make_config, say, wav_bytes
from tests.applications.summarizers import CONFIGS
from tests.applications.translators import PIECES, make_translator
from tests.fuzz.mutations import (
    many_marks,
    many_sentences,
    mutate_bytes,
    mutate_lines,
    mutate_png,
    mutate_text,
    mutate_tiff,
    mutate_tree,
    repeat_scans,
    to_json,
)
from tests.fuzz.mutations import to_toml as tree_to_toml

TEXT = "Yesterday in the morning, Alice likes Bob in the old town. It was reported by the police of Zork, they said."
SECRET = b"nobody may read this"
_WORDS = ["yesterday", "in", "the", "morning", ",", "alice", "likes", "bob", "old", "town", ".", "it", "was", "said"]
_PIXELS = np.random.default_rng(0).integers(0, 256, (24, 36, 3), dtype=np.uint8)
_IMAGE_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "TGA", "ICO")
_AUDIO_FORMATS = (
    ("WAV", "PCM_16"),
    ("WAV", "PCM_U8"),
    ("WAV", "PCM_24"),
    ("WAV", "PCM_32"),
    ("WAV", "FLOAT"),
    ("WAV", "DOUBLE"),
    ("WAV", "ULAW"),
    ("FLAC", None),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", None),
    ("AIFF", None),
    ("AU", None),
)


class Lab:
    """The applications are as small as may be, and greedy, so that their graphs are made in little time.

    Args:
        folder: for files.
    """

    def __init__(self, folder):
        self.folder = folder
        self.count = 0
        keras.utils.set_random_seed(0)
        self.captioner = ImageCaptioner(_captioner_config(), Vocabulary(["a", "dog", "runs"]))
        decoding = {"beam_size": 1, "max_length": 5, "ctc_weight": 0.0}
        config = make_config(decoding=decoding, output={"min_confidence": 0.0})
        self.recognizer = SpeechRecognizer(config, Vocabulary(LETTERS))
        words = Vocabulary([*UNKNOWN_CLASSES, *_WORDS])
        self.summarizer = TextSummarizer(_text_config(SummarizerConfig, "generate", num_best=2), words)
        self.compressor = SentenceCompressor(_text_config(CompressorConfig, "delete"), words)
        self.translator = make_translator(overrides=["decoding.beam_size=1", "decoding.max_length=6"], pieces=PIECES)
        self._exports = {}
        self._servers = contextlib.ExitStack()

    def close(self):
        self._servers.close()

    def preset(self, name):
        """The folder of an application, by the name of its attribute."""
        folder = self.folder / "presets" / name
        if not folder.exists():
            getattr(self, name).save(folder)
        return folder

    def export(self, name):
        """The export of an application, loaded."""
        if name not in self._exports:
            self._exports[name] = LoadedModel(getattr(self, name).export(self.folder / "exports" / name))
        return self._exports[name]

    @functools.cached_property
    def page(self):
        """The URL of the demo page; `uploads` is its folder, next to which lies `secret.png`."""
        from attention_apps.cli import web_page
        from tests.serving.fake_model import running_application

        self.uploads = self.folder / "uploads"
        self.uploads.mkdir()
        (self.folder / "secret.png").write_bytes(self.photos["PNG"] + SECRET)
        patch = self._servers.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("GRADIO_TEMP_DIR", str(self.uploads))
        tabs = dict(
            zip(web_page.TABS, (self.captioner, self.recognizer, self.summarizer, self.translator), strict=True)
        )
        url, _ = self._servers.enter_context(running_application(web_page.make_page(tabs, self.uploads)))
        return url

    # Inputs

    @functools.cached_property
    def photos(self):
        """The bytes of image files, by format."""
        files = {}
        for name in _IMAGE_FORMATS:
            buffer = io.BytesIO()
            Image.fromarray(_PIXELS).save(buffer, name)
            files[name] = buffer.getvalue()
        for name, mode, options in (
            ("JPEG grey", "L", {"progressive": True}),
            ("JPEG progressive", "RGB", {"progressive": True}),
            ("JPEG CMYK", "CMYK", {"exif": _exif(6)}),
            ("PNG palette", "P", {"transparency": 3}),
            ("PNG RGBA", "RGBA", {"exif": _exif(3)}),
            ("PNG deep", "I;16", {}),
            ("GIF animated", "P", {"save_all": True, "append_images": [Image.fromarray(255 - _PIXELS)]}),
        ):
            buffer = io.BytesIO()
            Image.fromarray(_PIXELS).convert("L" if mode == "I;16" else mode).convert(mode).save(
                buffer, name.split()[0], **options
            )
            files[name] = buffer.getvalue()
        return files

    def photo(self, chance):
        """The bytes of a spoilt image file."""
        if chance.random() < 0.05:
            return repeat_scans(self.photos["JPEG progressive"], chance)
        name = chance.choice(list(self.photos))
        mutate = {"PNG": mutate_png, "TIF": mutate_tiff}.get(name[:3], mutate_bytes)
        return (mutate if chance.random() < 0.6 else mutate_bytes)(self.photos[name], chance)

    @functools.cached_property
    def recordings(self):
        """The bytes of audio files, by format."""
        waveform = say("AB", letter_seconds=0.1)
        known = soundfile.available_formats()
        files = {
            f"{name} {subtype}": wav_bytes(waveform, file_format=name, subtype=subtype)
            for name, subtype in _AUDIO_FORMATS
            if name in known and (subtype is None or subtype in soundfile.available_subtypes(name))
        }
        stereo = np.stack([waveform, -0.5 * waveform], axis=1)
        return {**files, "stereo": wav_bytes(stereo, 44_100), "slow": wav_bytes(waveform[::2], 8000)}

    def recording(self, chance, formats=None):
        """The bytes of a spoilt audio file."""
        return mutate_bytes(self.recordings[chance.choice(formats or list(self.recordings))], chance)

    def text(self, chance):
        """A spoilt text, as a string or as bytes."""
        if chance.random() < 0.03:
            return chance.choice((many_marks, many_sentences))(chance)
        if chance.random() < 0.3:
            return mutate_bytes(TEXT.encode(), chance)
        return mutate_text(TEXT, chance)

    @functools.cached_property
    def data(self):
        """A folder with good manifests of all kinds and the files that they name; the manifests by task."""
        folder = self.folder / "data"
        folder.mkdir()
        for number, name in enumerate(("PNG", "JPEG", "BMP")):
            (folder / f"{number}.{name.lower()}").write_bytes(self.photos[name])
        (folder / "0.wav").write_bytes(self.recordings["WAV PCM_16"])
        (folder / "1.flac").write_bytes(self.recordings["slow"])
        rows = {
            "image_captioning": [("image", "caption")]
            + [(name, "a dog, it runs") for name in ("0.png", "1.jpeg", "2.bmp")],
            "speech_recognition": [("audio", "transcript"), ("0.wav", "AB"), ("1.flac", "b a")],
            "text_summarization": [("document", "summary"), (TEXT, "Alice likes Bob"), (TEXT[:60], "old town")],
            "sentence_compression": [("document", "summary"), (TEXT, "Alice likes Bob"), (TEXT[:60], "old town")],
            "machine_translation": [("source", "target"), ("the dog", "der Hund"), ("a tree", "ein Baum")],
        }
        return {task: _manifests(table) for task, table in rows.items()}

    def manifest(self, chance):
        """A task and the path of a spoilt manifest of it."""
        task = chance.choice(list(self.data))
        name = chance.choice(list(self.data[task]))
        contents = self.data[task][name]
        contents = chance.choice((mutate_bytes, mutate_lines, mutate_lines))(contents, chance)
        if name == "jsonl" and chance.random() < 0.3:
            rows = self.data[task][name].splitlines()
            contents = b"\n".join(to_json(mutate_tree(json.loads(row), chance)) for row in rows)
        if chance.random() < 0.1:
            contents = gzip.compress(contents, mtime=0)
            contents = contents if chance.random() < 0.3 else mutate_bytes(contents, chance)
            name += ".gz"
        return task, self.write(contents, f".{name}", folder=self.folder / "data")

    def good_manifest(self, task):
        return self.write(self.data[task]["csv"], ".csv", folder=self.folder / "data")

    def config_file(self, name, chance):
        """The bytes of an application's configuration as TOML, spoilt."""
        config = getattr(self, name).config
        if chance.random() < 0.4:
            return mutate_lines(to_toml(config).encode(), chance)
        return tree_to_toml(mutate_tree(to_dict(config), chance))

    # Files

    def write(self, contents, ending, folder=None):
        """A new file, or the one before if that has been used: a fuzz test writes too many to keep them."""
        self.count = (self.count + 1) % 64
        path = (folder or self.folder) / f"case_{self.count}{ending}"
        path.write_bytes(contents)
        return path

    def copy_preset(self, name):
        folder = self.folder / "spoilt"
        shutil.rmtree(folder, ignore_errors=True)
        return shutil.copytree(self.preset(name), folder)


def _captioner_config():
    return CaptionerConfig(
        encoder=ImageEncoderConfig("efficientnet_lite0", image_size=32, units=4),
        decoder=DecoderConfig(embedding_dim=3, units=5, attention=AttentionConfig(units=6)),
        decoding=DecodingOptions(beam_size=1, max_length=4, min_length=2, banned_tokens=(0, 1, 3)),
    )


def _text_config(config_class, kind, num_best=1):
    decoding = {"beam_size": num_best, "num_best": num_best, "max_length": 6}
    return read_config(config_class, {**CONFIGS[kind], "decoding": decoding})


def seal(folder):
    """Writes hashes that fit, as somebody would who means harm."""
    sums = folder / "SHA256SUMS"
    if sums.is_dir():
        sums.rmdir()
    sums.unlink(missing_ok=True)  # or a link would be written through
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files))


def _exif(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def _manifests(table):
    header, *rows = table
    quoted = [",".join(f'"{field}"' for field in row) for row in rows]
    return {
        "csv": "\n".join([",".join(header), *quoted, ""]).encode(),
        "tsv": "\n".join("\t".join(row) for row in [*table, ()]).encode(),
        "jsonl": b"".join(to_json(dict(zip(header, row, strict=True))) + b"\n" for row in rows),
        "txt": "".join(f"{source}#0\t{target}\n" for source, target in rows).encode(),
    }
