"""What must hold of each spoilt input, by the kind of the input and the way in.

A check takes the lab, a `random.Random` for each case and one for what the cases share, and raises where something does
not hold.
"""

import contextlib
import http.client
import io
import json
import math
import sys
from urllib.parse import quote

import numpy as np
import PIL.Image

from attention_apps.applications import TASKS
from attention_apps.cli import main
from attention_apps.data import Manifest
from attention_apps.training.config import read_config, to_toml
from tests.fuzz.lab import SECRET, TEXT, seal
from tests.fuzz.mutations import (
    lengthen,
    many_marks,
    many_sentences,
    mutate_bytes,
    mutate_lines,
    mutate_text,
    mutate_tree,
    repeat_scans,
    to_json,
)

_NAMES = {
    "image_captioning": "captioner",
    "speech_recognition": "recognizer",
    "text_summarization": "summarizer",
    "sentence_compression": "compressor",
    "machine_translation": "translator",
}
_FROM_THE_INSIDE = ("has no attribute", "unexpected keyword", "expected str", "'NoneType'", "{{node", "codec can")
_SMALL = 100
_ANSWERED = {b"ok", b"cut", b"short", b"blank"}
_REFUSED = {b"undecodable image", b"unsupported image format", b"image too large", b"text too long"}
_REFUSED |= {b"undecodable audio", b"unsupported audio format", b"audio too long", b"audio too short"}
_REFUSED |= {b"silent", b"unclear"}


# Images


def images_in_python(lab, chances, way):
    photos = [_image(lab, chance) for chance in chances]
    _check_live(lab.captioner.caption, photos, lab.photos["PNG"])


def images_on_the_command_line(lab, chances, way):
    paths = [lab.write(lab.photo(chance), chance.choice((".jpg", ".png", ".gif", ""))) for chance in chances]
    _check_answers(lab, "caption", "captioner", paths, way)


def images_in_a_saved_model(lab, chances, way):
    photos = [lab.photo(chance) for chance in chances]
    _check_served(lab, "captioner", "image_bytes", photos, lab.photos["PNG"])


def _image(lab, chance):
    """Bytes, a path, a Pillow image or an array."""
    way = chance.random()
    if way < 0.6:
        return lab.photo(chance)
    if way < 0.7:
        return lab.write(lab.photo(chance), chance.choice((".jpg", ".png", "")))
    if way < 0.8:
        mode, side = chance.choice(("1", "L", "LA", "P", "PA", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F")), chance.choice
        return PIL.Image.new(mode, (side((1, 2, 9)), side((1, 3, 40))))
    if way < 0.9:
        shape = [chance.choice((0, 1, 2, 3, 4, 5, 9)) for _ in range(chance.randrange(5))]
        dtype = chance.choice(("u1", "i1", "u2", "i8", "f2", "f4", "f8", "?", "c8", "U1", "O", "M8[s]"))
        return np.zeros(shape, dtype)
    return chance.choice((None, 3, "", "no/such/file.jpg", "data:,x", b"", [], {}, np.full((2, 3), np.nan), "a\0b"))


def scans_in_python(lab, chances, way):
    _check_live(lab.captioner.caption, [_scans(lab, chance) for chance in chances], lab.photos["PNG"])


def scans_in_a_saved_model(lab, chances, way):
    _check_served(lab, "captioner", "image_bytes", [_scans(lab, chance) for chance in chances], lab.photos["PNG"])


def _scans(lab, chance):
    return repeat_scans(lab.photos[chance.choice(("JPEG progressive", "JPEG grey"))], chance)


# Recordings


def recordings_in_python(lab, chances, way):
    if way.random() < 0.2:
        _check_array(lab, way)
    recordings = [_recording(lab, chance) for chance in chances]
    _check_live(lab.recognizer.transcribe, recordings, lab.recordings["WAV PCM_16"])


def recordings_on_the_command_line(lab, chances, way):
    paths = [lab.write(lab.recording(chance), chance.choice((".wav", ".mp3", ""))) for chance in chances]
    _check_answers(lab, "transcribe", "recognizer", paths, way)


def recordings_in_a_saved_model(lab, chances, way):
    waves = [name for name in lab.recordings if name.startswith(("WAV", "stereo", "slow"))] * 3 + list(lab.recordings)
    recordings = [lab.recording(chance, waves) for chance in chances]
    _check_served(lab, "recognizer", "audio_bytes", recordings, lab.recordings["WAV PCM_16"])
    if way.random() < 0.2:
        _check_waveforms(lab, chances, way)


def _check_waveforms(lab, chances, way):
    """The second signature: numbers of which some are none, and lengths that do not fit."""
    waveform = np.zeros((len(chances), way.choice((0, 1, 300, 4000, 70_000))), np.float32)
    for row, chance in zip(waveform, chances, strict=True):
        for _ in range(min(len(row), 9)):
            row[chance.randrange(len(row))] = chance.choice((math.nan, math.inf, 1e38, -1e-38, 0.5, -1, 3))
    length = [chance.choice((-(2**31), -1, 0, 1, 200, 4000, 2**31 - 1)) for chance in chances]
    outputs = lab.export("recognizer").predict({"waveform": waveform, "length": length}, "waveform")
    assert set(outputs["status"].tolist()) <= _ANSWERED | _REFUSED
    assert all(np.isfinite(array).all() for array in outputs.values() if array.dtype.kind == "f")


def _recording(lab, chance):
    """Bytes, a path, or what is neither."""
    way = chance.random()
    if way < 0.8:
        return lab.recording(chance)
    if way < 0.9:
        return lab.write(lab.recording(chance), chance.choice((".wav", ".flac", "")))
    return chance.choice((None, 3, "", "no/such/file.wav", "https://x/y.wav", b"", {}, "a\0b", np.zeros(9)))


def _check_array(lab, chance):
    shape = [chance.choice((0, 1, 2, 33, 500, 4000)) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
    array = np.zeros(shape[:1] + [min(size, 40) for size in shape[1:]], chance.choice(("f4", "f8", "i2", "u1", "i8")))
    if array.size and array.dtype.kind == "f":
        array.flat[chance.randrange(array.size)] = chance.choice((math.nan, math.inf, 1e300, 0.5))
    rate = chance.choice((16_000, 16_000, 8000, 0, -1, 3999, 4000, 384_000, 1e9, math.nan, math.inf, None))
    with _may_refuse():
        _check_result(lab.recognizer.transcribe((array, rate)))


# Texts


def texts_in_python(lab, chances, way):
    answer = way.choice((lab.summarizer.summarize, lab.translator.translate, lab.compressor.compress))
    texts = [lab.text(chance) if chance.random() < 0.95 else chance.choice((None, 3, [], "")) for chance in chances]
    _check_live(answer, texts, TEXT)
    if way.random() < 0.2:
        options = {} if answer == lab.translator.translate else {"sentences": 2}
        _check_live(lambda items: answer(items, beam_size=2, num_best=2, **options), texts, TEXT)


def texts_on_the_command_line(lab, chances, way):
    name = way.choice(("summarizer", "translator", "compressor"))
    paths = [lab.write(_as_bytes(lab.text(chance)), chance.choice((".txt", ""))) for chance in chances]
    _check_answers(lab, "translate" if name == "translator" else "summarize", name, paths, way)


def texts_in_a_saved_model(lab, chances, way):
    name = way.choice(("summarizer", "compressor", "translator"))
    _check_served(lab, name, "text", [_as_bytes(lab.text(chance)) for chance in chances], TEXT.encode())


def verbatim_texts_in_python(lab, chances, way):
    answer = way.choice((lab.summarizer.summarize, lab.summarizer.summarize, lab.compressor.compress))
    _check_live(answer, [many_marks(chance) for chance in chances], TEXT)


def verbatim_texts_on_the_command_line(lab, chances, way):
    paths = [lab.write(_as_bytes(many_marks(chance)), ".txt") for chance in chances]
    _check_answers(lab, "summarize", way.choice(("summarizer", "compressor")), paths, way)


def verbatim_texts_in_a_saved_model(lab, chances, way):
    texts = [_as_bytes(chance.choice((many_marks, many_sentences))(chance)) for chance in chances]
    _check_served(lab, way.choice(("summarizer", "compressor")), "text", texts, TEXT.encode())


def _as_bytes(text):
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


# Manifests


def manifests_in_python(lab, chances, way):
    for chance in chances:
        task, path = lab.manifest(chance)
        application = getattr(lab, _NAMES[task])
        manifest = application.manifest(path)
        problems = []
        with _may_refuse(path):
            for row in manifest.rows(problems.append):
                assert all(isinstance(row[column], str) for column in application.parts.examples.columns)
        assert all(str(problem).startswith(f"{path}, line ") for problem in problems)
        with _may_refuse(path):
            report = application.check_data(path, quiet=True)
            assert json.loads(json.dumps(report.to_dict()))
            assert report.to_text()
        with _may_refuse():
            list(Manifest(path, {"a": chance.choice(("image", "summary", ""))}).rows())


def manifests_on_the_command_line(lab, chances, way):
    for chance in chances:
        task, path = lab.manifest(chance)
        if task == "text_summarization" and chance.random() < 0.3:
            code, output, _ = _run("evaluate", lab.preset("summarizer"), path, "--quiet", "--json")
            assert code in (0, 1, 2)
        else:
            code, output, _ = _run("check-data", task, "--data", path, "--quiet", "--json")
            assert code in (0, 1, 2)
        assert (json.loads(output) if code < 2 else output == "") is not None


def long_manifests_in_python(lab, chances, way):
    for chance in chances:
        task, ending = chance.choice(list(lab.data)), chance.choice(("csv", "tsv", "jsonl", "txt"))
        path = lab.write(lengthen(lab.data[task][ending], chance), f".{ending}", folder=lab.folder / "data")
        with _may_refuse(path):
            _check_message(getattr(lab, _NAMES[task]).check_data(path, quiet=True).to_text())


# Configurations


def configurations_in_python(lab, chances, way):
    for chance in chances:
        name = chance.choice(("captioner", "recognizer", "summarizer", "compressor", "translator"))
        application = type(getattr(lab, name))
        path = lab.write(lab.config_file(name, chance), ".toml")
        overrides = [_override(chance)] if chance.random() < 0.2 else []
        with _may_refuse(None if overrides else path):
            config = read_config(application.config_class, path, overrides)
            again = lab.write(to_toml(config).encode(), ".toml")
            assert read_config(application.config_class, again) == config
            if name != "captioner" and chance.random() < 0.3 and _is_small(config):
                with _may_refuse():
                    application(config, getattr(lab, name).vocabulary)


def configurations_on_the_command_line(lab, chances, way):
    for chance in chances:
        task = chance.choice(list(TASKS))
        path = lab.write(lab.config_file(_NAMES[task], chance), ".toml")
        arguments = ["--data", lab.good_manifest(task), "--config", path, "--quiet"]
        if chance.random() < 0.3:
            arguments += ["--set", _override(chance)]
        code, output, errors = _run("check-data", task, *arguments)
        assert code in (0, 1, 2)
        assert output or errors


def _override(chance):
    key = chance.choice(("training.epochs", "decoder.units", "decoding.beam_size", "decoding", "nothing", "a.b.c", ""))
    return key + chance.choice(("=", "=3", "=-1", '="x"', "=[1,", "=nan", "", f"={mutate_text('a b', chance)}"))


def _is_small(config):
    """Whether nothing in a configuration makes a model that takes long to build."""
    sections = (config.encoder, config.decoder, getattr(config.decoder, "attention", config.decoder))
    return all(value <= _SMALL for section in sections for value in vars(section).values() if type(value) is int)


# Preset folders


def preset_folders_in_python(lab, chances, way):
    for chance in chances:
        names = ("summarizer",) * 8 + ("compressor",) * 8 + ("translator",) * 8 + ("recognizer",) * 6 + ("captioner",)
        name = chance.choice(names)
        folder, is_sealed = _spoil(lab, name, chance)
        cls = type(getattr(lab, name))
        with _may_refuse() as refusal:
            application = cls.from_preset(folder)
            if chance.random() < 0.05 and name == "compressor":
                _check_result(application.compress(TEXT))
        assert is_sealed or refusal, "a folder was loaded that is not what its hashes say"


def preset_folders_on_the_command_line(lab, chances, way):
    for chance in chances:
        folder, is_sealed = _spoil(lab, "compressor", chance)
        path = lab.write(TEXT.encode(), ".txt")
        command = chance.choice(("summarize", "evaluate", "check-data"))
        if command == "summarize":
            code, _, _ = _run("summarize", path, "--preset", folder, "--json")
        elif command == "evaluate":
            code, _, _ = _run("evaluate", folder, folder / "no.csv", "--quiet")
        else:
            data = lab.good_manifest("sentence_compression")
            code, _, _ = _run("check-data", "sentence_compression", "--data", data, "--preset", folder, "--quiet")
        assert code in (0, 1, 2)
        assert is_sealed or code == 2


def long_presets_in_python(lab, chances, way):
    """Files of which a line or a word is very long, with hashes that fit."""
    for chance in chances:
        name = chance.choice(("summarizer", "compressor", "recognizer"))
        folder = lab.copy_preset(name)
        path = folder / chance.choice([path.name for path in sorted(folder.iterdir()) if path.suffix != ".safetensors"])
        path.write_bytes(lengthen(path.read_bytes(), chance))
        if path.name != "SHA256SUMS":
            seal(folder)
        with _may_refuse() as refusal:
            type(getattr(lab, name)).from_preset(folder)
        assert all(len(str(error)) < 5000 for error in refusal)


def _spoil(lab, name, chance):
    """A spoilt copy of a preset folder, and whether its hashes fit."""
    folder = lab.copy_preset(name)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    path = folder / chance.choice(sorted(before))
    change = chance.randrange(9)
    if change == 0:
        path.unlink()
    elif change == 1:
        (folder / chance.choice(("extra.txt", "model.py", ".hidden", "weights.pickle"))).write_bytes(b"anything\n")
    elif change == 2:
        path.rename(folder / chance.choice(sorted(before)))
    elif change == 3:
        path.unlink()
        path.symlink_to(lab.preset(name) / path.name)
    elif change == 4:
        path.unlink()
        path.mkdir()
    elif change == 5 or path.name == "config.json":
        config = json.loads(before["config.json"])
        (folder / "config.json").write_bytes(to_json(mutate_tree(config, chance)))
    else:
        mutate = mutate_lines if path.suffix == ".txt" or path.name == "SHA256SUMS" else mutate_bytes
        path.write_bytes(mutate(before[path.name], chance))
    if chance.random() < 0.5:
        seal(folder)
        return folder, True
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    is_same_list = files.pop("SHA256SUMS", b"").split() == before["SHA256SUMS"].split()
    is_whole = is_same_list and all(before.get(name) == contents for name, contents in files.items())
    return folder, is_whole and len(files) == len(before) - 1


# Requests to the demo page

_JOIN, _UPLOAD = "/gradio_api/queue/join", "/gradio_api/upload"
_ROUTES = ("config", "info", "queue/data", "queue/status", "heartbeat/x", "upload", "run/predict", "reset", "cancel")
_ROUTES += ("call/predict", "proxy=http://127.0.0.1:1/", "stream/1", "component_server", "file=", "deep_link")


def requests_of_the_page(lab, chances, way):
    """Every request is answered in time, and none of them with a file that was not uploaded."""
    for chance in chances:
        status, body = _send(lab, *_request(lab, chance))
        assert 200 <= status < 500, f"{status}: {body[:300]}"
        assert SECRET not in body
    assert not list(lab.uploads.rglob("secret*"))
    status, body = _send(lab, "GET", "/config", None, {})
    assert (status, json.loads(body)["mode"]) == (200, "blocks")


def _request(lab, chance):
    """The method, path, body and headers of a request that no browser would send."""
    secret, uploads = lab.folder / "secret.png", f"{lab.folder}/uploads"
    paths = [str(secret), f"{uploads}/../secret.png", "secret.png", f"file://{secret}", f"{uploads}/x/../../secret.png"]
    file = {"path": chance.choice(paths), "url": chance.choice(paths), "meta": {"_type": "gradio.FileData"}}
    content = {"data": [file], "fn_index": chance.randrange(9), "session_hash": f"s{chance.random()}"}
    headers = {"content-type": "application/json"}
    if chance.random() < 0.1:
        headers[chance.choice(("host", "origin"))] = chance.choice(("evil.example", "null", "[::", "localhost@x", ""))
    change = chance.randrange(6)
    if change < 2:
        return "POST", _JOIN, to_json(mutate_tree(content, chance)), headers
    if change == 2:
        return (
            "POST",
            chance.choice((_JOIN, "/gradio_api/run/load_example")),
            mutate_bytes(to_json(content), chance),
            headers,
        )
    if change == 3:
        name = quote(mutate_text("mine.png", chance)[:200], errors="replace", safe=" \\'\"")
        head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
        body = mutate_bytes(head.encode() + lab.photo(chance)[:20_000] + b"\r\n--x--\r\n", chance)
        return "POST", _UPLOAD, body, {**headers, "content-type": "multipart/form-data; boundary=x"}
    if change == 4:
        path = quote(chance.choice(paths), safe=chance.choice(("/", "")))
        return (
            "GET",
            f"/gradio_api/file={path.replace('%2F', chance.choice(('%2F', '%252F', '//', '/./')))}",
            None,
            headers,
        )
    route = quote(mutate_text(chance.choice(_ROUTES), chance)[:500], errors="replace")
    return chance.choice(("GET", "POST", "HEAD", "PUT", "DELETE")), f"/gradio_api/{route}", b"", headers


def _send(lab, method, path, body, headers):
    """The status and the first bytes of an answer; a stream of events does not end by itself."""
    connection = http.client.HTTPConnection(lab.page.removeprefix("http://"), timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, b"" if "event-stream" in response.getheader("content-type", "") else response.read()


# What is said


def _check_live(answer, items, good):
    """Answers for a list, in which a good item is answered as if it were alone, and for one item."""
    *results, last = answer([*items, good])
    assert len(results) == len(items)
    for result in results:
        _check_result(result)
    assert last.error is None
    assert last.text == answer(good).text
    with _may_refuse():
        _check_result(answer(items[0]) if not isinstance(items[0], list) else results[0])


def _check_result(result):
    if result.error is not None:
        _check_message(result.error)
        assert result.text == ""
        return
    result.text.encode()
    assert not math.isnan(result.score)
    assert all(isinstance(text, str) and not math.isnan(score) for text, score in result.alternatives)
    if result.attention is not None:
        assert np.isfinite(result.attention).all()


def _check_served(lab, name, field, items, good):
    model = lab.export(name)
    outputs = model.predict({field: [*items, good]})
    assert {len(array) for array in outputs.values()} == {len(items) + 1}
    assert set(outputs["status"].tolist()) <= _ANSWERED | _REFUSED
    for texts, status in zip(outputs["text"], outputs["status"], strict=True):
        assert status in _ANSWERED or not any(texts)
        assert all(text.decode() is not None for text in texts)
    assert all(np.isfinite(array).all() for array in outputs.values() if array.dtype.kind == "f")
    assert outputs["status"][-1] == b"ok"
    assert outputs["text"][-1].tolist() == model.predict({field: [good]})["text"][0].tolist()


def _check_answers(lab, command, name, paths, way):
    """A line of JSON for each file; now and then a page as well, or the first file from standard input."""
    arguments = ["--preset", lab.preset(name), "--json"]
    if way.random() < 0.1:
        arguments += ["--html", lab.folder / "pages"]
    names, stdin = [str(path) for path in paths], b""
    if way.random() < 0.2:
        names[0], stdin = "-", paths[0].read_bytes()
    code, output, _ = _run(command, *names, *arguments, stdin=stdin)
    entries = [json.loads(line) for line in output.splitlines()]
    assert [entry["source"] for entry in entries] == names
    for entry in entries:
        if "error" in entry:
            assert entry["text"] is None
            _check_message(entry["error"])
    assert code == int(any("error" in entry for entry in entries))


def _run(*arguments, stdin=b""):
    """The exit code, standard output and standard error of `attention-apps`; an exception would be a traceback."""
    output, errors = io.StringIO(), io.StringIO()
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdin = before
    assert "Traceback" not in errors.getvalue()
    if code == 2:
        _check_message(errors.getvalue())
    return code, output.getvalue(), errors.getvalue()


@contextlib.contextmanager
def _may_refuse(path=None):
    """Lets errors pass that are meant for users; the list it gives holds the error afterwards."""
    refusal = []
    try:
        yield refusal
    except UnicodeError:  # a `ValueError`, but nobody's message
        raise
    except (ValueError, TypeError, OSError) as error:
        refusal.append(error)
    for error in refusal:
        _check_message(str(error))
        assert path is None or path.name in str(error), f"{error} does not name {path.name}"


def _check_message(message):
    """A sentence, and not what Python or TensorFlow say when nobody has thought of it."""
    assert len(message.split()) >= 3, f"not much of a message: {message!r}"
    assert not any(words in message for words in _FROM_THE_INSIDE), f"a message from the inside: {message!r}"


# For every 100 cases, how many are of a kind, and how many are tried together.
KINDS = {
    images_in_python: (10, 8),
    images_on_the_command_line: (5, 8),
    images_in_a_saved_model: (10, 8),
    recordings_in_python: (10, 8),
    recordings_on_the_command_line: (5, 8),
    recordings_in_a_saved_model: (8, 8),
    texts_in_python: (10, 8),
    texts_on_the_command_line: (5, 8),
    texts_in_a_saved_model: (8, 8),
    manifests_in_python: (10, 1),
    manifests_on_the_command_line: (4, 1),
    configurations_in_python: (9, 1),
    configurations_on_the_command_line: (2, 1),
    preset_folders_in_python: (3, 1),
    preset_folders_on_the_command_line: (1, 1),
    scans_in_python: (3, 8),
    scans_in_a_saved_model: (3, 8),
    verbatim_texts_in_python: (3, 4),
    verbatim_texts_on_the_command_line: (1, 4),
    verbatim_texts_in_a_saved_model: (2, 4),
    long_manifests_in_python: (2, 1),
    long_presets_in_python: (2, 1),
    requests_of_the_page: (10, 8),
}
