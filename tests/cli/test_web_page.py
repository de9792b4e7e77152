"""The page of `attention-apps demo`, in a browser: what it answers is what the applications answer."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

from attention_apps.applications import ImageCaptioner, SummarizerConfig, TextSummarizer, preset
from attention_apps.cli import demo, main, web_page
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASSES
from attention_apps.training.config import read_config
from tests.applications.captioners import PHOTO, as_bytes, make_captioner
from tests.applications.recognizers import make_recognizer, say, wav_bytes
from tests.applications.summarizers import CONFIGS
from tests.applications.translators import PIECES, make_translator
from tests.browser import open_browser

pytest.importorskip("gradio", reason="the page needs the extra `demo`")
pytestmark = pytest.mark.filterwarnings("ignore:::gradio")

PHOTOS, SPEECH, TEXTS, TRANSLATIONS = web_page.TABS
TEXT = "Alice likes Bob in ${1+1} <b>old</b> towns, {{value}} & more."


@pytest.fixture(scope="module")
def applications():
    captioner = make_captioner()
    recognizer = make_recognizer()
    keras.utils.set_random_seed(4)
    words = Vocabulary([*UNKNOWN_CLASSES, "alice", "likes", "bob", "in", "old", "of", "and", "more", "."])
    summarizer = TextSummarizer(read_config(SummarizerConfig, CONFIGS["generate"]), words)
    translator = make_translator(pieces=PIECES)
    return {PHOTOS: captioner, SPEECH: recognizer, TEXTS: summarizer, TRANSLATIONS: translator}


@contextlib.contextmanager
def served(applications, folder):
    from tests.serving.fake_model import running_application

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        with running_application(web_page.make_page(applications, folder)) as (url, _):
            yield url


@pytest.fixture(scope="module")
def url(applications, tmp_path_factory):
    with served(applications, tmp_path_factory.mktemp("uploads")) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    with open_browser("--window-size=1200,1000") as browser:
        yield browser


@pytest.fixture
def page(browser, url):
    """The page anew, whose requests are looked at in the end."""
    browser.open(url)
    browser.wait_for("return document.querySelectorAll('button[role=tab]').length > 2")
    yield browser
    elsewhere = [one for one in browser.requested_urls() if not one.startswith((f"{url}/", "data:", "blob:"))]
    assert elsewhere == []


def ask(page, tab, source):
    """Gives a tab a file or a text, and waits for what it says."""
    page.click(f"#{tab}-button")
    if tab in (TEXTS, TRANSLATIONS):
        page.wait_for(f"return !!document.querySelector('#{tab} textarea')")
        page.type(f"#{tab} textarea", source)
        page.click(f"#{tab} button.primary")
    else:
        page.type(f"#{tab} input[type=file]", source)
    found = f"document.querySelector('#{tab} .answer, #{tab} .problem')"
    page.wait_for(f"return !!{found}")
    return page.run(f"return {found}.className")


def answer_of(page, tab):
    """The text and the alternatives with their scores, as they are seen."""
    text = page.run(f"return document.querySelector('#{tab} .text').innerText")
    cells = "row => [...row.children].map(cell => cell.innerText)"
    rows = page.run(f"return [...document.querySelectorAll('#{tab} .answer li')].map({cells})")
    return text, [(text, float(score)) for score, text in rows]


def expected(result):
    return result.text, [(text, pytest.approx(score, abs=6e-4)) for text, score in result.alternatives]


def in_frame(page, tab, script):
    """The value of a script's expression about `page`, the document in a tab's frame, once it is laid out."""
    frame = f"document.querySelector('#{tab} iframe')"
    page.wait_for(f"return {frame}.offsetHeight > 20 && {frame}.style.height !== ''")
    return page.run(f"const page = {frame}.contentDocument; return {script}")


def problem(page, tab):
    return page.run(f"return document.querySelector('#{tab} .problem').innerText")


def test_a_photo_is_captioned_with_where_the_model_looked_for_each_word(page, applications, tmp_path):
    (tmp_path / "photo.png").write_bytes(as_bytes("PNG"))
    assert ask(page, PHOTOS, tmp_path / "photo.png") == "answer"
    captioner = applications[PHOTOS]
    caption = captioner.caption(PHOTO, num_best=web_page.NUM_BEST)
    assert len(caption.alternatives) == web_page.NUM_BEST
    assert answer_of(page, PHOTOS) == expected(caption)
    words = in_frame(page, PHOTOS, "[...page.querySelectorAll('.word')].map(e => [e.innerText, e.children.length])")
    assert words == [[word, 1] for word in caption.tokens]


def test_a_recording_is_written_down_with_a_waveform_and_times(page, applications, tmp_path):
    (tmp_path / "abc.wav").write_bytes(wav_bytes(say("AB CA")))
    assert ask(page, SPEECH, tmp_path / "abc.wav") == "answer"
    recognizer = applications[SPEECH]
    transcript = recognizer.transcribe(tmp_path / "abc.wav", num_best=web_page.NUM_BEST)
    assert answer_of(page, SPEECH) == expected(transcript)
    assert in_frame(page, SPEECH, "page.querySelector('svg').getBoundingClientRect().width") > 200
    rows = in_frame(
        page, SPEECH, "[...page.querySelectorAll('tr')].slice(1).map(e => [...e.children].map(c => c.innerText))"
    )
    assert [[row[0], *map(float, row[1:3])] for row in rows] == [
        [word.word, pytest.approx(word.start, abs=6e-3), pytest.approx(word.end, abs=6e-3)] for word in transcript.words
    ]


def test_a_text_is_summarized_with_the_words_that_were_read(page, applications):
    assert ask(page, TEXTS, TEXT) == "answer"
    summarizer = applications[TEXTS]
    summary = summarizer.summarize(TEXT, num_best=web_page.NUM_BEST)
    assert answer_of(page, TEXTS) == expected(summary)
    words = in_frame(page, TEXTS, "[...page.querySelectorAll('.source span')].map(e => e.innerText)")
    assert words == summary.source_tokens
    shades = in_frame(page, TEXTS, "[...page.querySelectorAll('.source span')].map(e => e.style.background)")
    weights = np.round(summary.attention[0], 3)
    assert [float(shade.split()[-1].rstrip(")")) if "rgba" in shade else 1.0 for shade in shades] == pytest.approx(
        0.8 * weights / weights.max(), abs=5e-3
    )
    assert page.run("return [...document.querySelectorAll('b')].length") == 0


@pytest.mark.parametrize("shape", [(900, 500), (300, 900)], ids=["portrait", "panorama"])
def test_everything_about_a_photo_fits_a_small_window(page, tmp_path, shape):
    window = page.run("return [window.innerWidth, window.innerHeight, window.outerWidth, window.outerHeight]")
    page.resize(1280 + window[2] - window[0], 800 + window[3] - window[1])
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.jpg")
    assert ask(page, PHOTOS, tmp_path / "photo.jpg") == "answer"
    photo, words = in_frame(
        page,
        PHOTOS,
        "['.photo-attention > img', '.words'].map(one => page.querySelector(one).getBoundingClientRect().toJSON())",
    )
    assert photo["right"] < words["left"]
    assert photo["top"] <= words["top"] < photo["bottom"]
    assert photo["height"] <= 321
    bottom = "document.querySelector('#image_captioning .answer').getBoundingClientRect().bottom"
    assert page.run(f"return {bottom}") <= 800


def test_on_a_phone_the_answer_comes_before_samples_and_settings(page, tmp_path):
    page.resize(500, 900)  # no window is narrower
    (tmp_path / "photo.png").write_bytes(as_bytes("PNG"))
    assert ask(page, PHOTOS, tmp_path / "photo.png") == "answer"
    parts = ("input[type=file]", ".answer", ".gallery", ".settings")
    tops = [
        page.run(f"return document.querySelector('#{PHOTOS} {part}').getBoundingClientRect().top") for part in parts
    ]
    page.resize(1200, 1000)
    assert tops[1:] == sorted(tops[1:])
    assert tops[0] < tops[1]


def test_settings_change_the_answer(page, applications, tmp_path):
    (tmp_path / "photo.png").write_bytes(as_bytes("PNG"))
    ask(page, PHOTOS, tmp_path / "photo.png")
    page.run(
        f"const box = document.querySelectorAll('#{PHOTOS} input[type=number]')[1]; box.value = 2;"
        "box.dispatchEvent(new Event('input')); box.dispatchEvent(new Event('change')); return 1"
    )
    page.wait_for(f"return document.querySelectorAll('#{PHOTOS} .answer li').length == 2")
    assert answer_of(page, PHOTOS) == expected(applications[PHOTOS].caption(PHOTO, num_best=2))


def test_what_no_browser_sends_is_refused():
    models = web_page.TabModels([PHOTOS], make_captioner(), ImageCaptioner.default_preset)
    assert models.names == ["show_attend_tell_coco", "show_attend_tell_flickr8k", "show_attend_tell_hard_flickr8k"]
    with pytest.raises(ValueError, match="no such preset"):
        models.answer(PHOTO, "../elsewhere", 5, 4)
    with pytest.raises(ValueError, match="must be from 1 to 20"):
        models.answer(PHOTO, models.default, 1000, 4)
    assert "../elsewhere" not in models.about("../elsewhere")
    assert "photo" in models.about(models.default)


def test_a_model_says_what_it_is_for_and_not_for(monkeypatch):
    models = web_page.TabModels([PHOTOS], make_captioner(), ImageCaptioner.default_preset)
    card = {"for": "photos of <dogs>", "not_for": "charts"}
    monkeypatch.setattr(web_page, "describe", lambda folder: card)
    page = models.about(models.default)
    assert "<strong>Made for:</strong> photos of &lt;dogs&gt;." in page
    assert "<strong>Not for:</strong> charts." in page
    card["not_for"] = None
    assert "Not for" not in models.about(models.default)


def test_a_text_is_translated_with_the_words_that_were_read(page, applications):
    assert ask(page, TRANSLATIONS, TEXT) == "answer"
    translation = applications[TRANSLATIONS].translate(TEXT, num_best=web_page.NUM_BEST)
    assert answer_of(page, TRANSLATIONS)[1] == expected(translation)[1]
    words = in_frame(page, TRANSLATIONS, "[...page.querySelectorAll('.source span')].map(e => e.innerText)")
    assert words == translation.source_tokens


def test_what_is_no_photo_is_said_by_its_name(page, tmp_path):
    (tmp_path / "letter.jpg").write_text("Dear all, this is not a photo.")
    assert "problem" in ask(page, PHOTOS, tmp_path / "letter.jpg")
    assert problem(page, PHOTOS) == "letter.jpg is not an image, or has an unknown format"


def test_what_is_no_recording_is_said_by_its_name(page, tmp_path):
    (tmp_path / "letter.wav").write_text("Dear all, this is not a recording.")
    assert "problem" in ask(page, SPEECH, tmp_path / "letter.wav")
    assert problem(page, SPEECH).startswith("letter.wav is not a recording")


def test_silence_is_said_to_be_silence(page, tmp_path):
    (tmp_path / "silence.wav").write_bytes(wav_bytes(np.zeros(16000, np.float32)))
    assert "problem" in ask(page, SPEECH, tmp_path / "silence.wav")
    assert problem(page, SPEECH).startswith("Nothing was heard")


def test_a_blank_text_is_asked_for(page):
    assert "problem" in ask(page, TEXTS, "  ")
    assert problem(page, TEXTS).startswith("There is no text here")


def test_the_browser_is_told_to_load_nothing_from_elsewhere(url):
    with urllib.request.urlopen(url) as response:
        policy = response.headers["content-security-policy"]
        page = response.read().decode()
    assert policy.startswith("default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval';")
    assert "fonts.googleapis" not in page
    assert '"analytics_enabled": false' in page or '"analytics_enabled":false' in page


MARK = {"meta": {"_type": "gradio.FileData"}}


def post(url, path, content, **headers):
    """The status and body of a raw request; an error is an answer too."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    request = urllib.request.Request(f"{url}{path}", body, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def photo_function(url):
    """The number of the function that answers a photo."""
    with urllib.request.urlopen(f"{url}/config") as response:
        config = json.load(response)
    photos = [one["id"] for one in config["components"] if one["type"] == "image"]
    (number,) = (
        one["id"] for one in config["dependencies"] if one["targets"] and one["targets"][0] == [photos[0], "change"]
    )
    return number


def upload(url, name, contents):
    """The path on the server of an uploaded file."""
    head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
    body = head.encode() + contents + b"\r\n--x--\r\n"
    status, answer = post(url, "/gradio_api/upload", body, **{"content-type": "multipart/form-data; boundary=x"})
    assert status == 200, answer
    return json.loads(answer)[0]


def call(url, content, session):
    """What the queue answers to a change of the photo that no browser sent."""
    name = ImageCaptioner.default_preset
    body = {"data": [content, name, 5, web_page.NUM_BEST], "fn_index": photo_function(url), "session_hash": session}
    status, answer = post(url, "/gradio_api/queue/join", body)
    if status != 200:
        return status, answer
    with urllib.request.urlopen(f"{url}/gradio_api/queue/data?session_hash={session}") as response:
        return status, response.read().decode()


@pytest.mark.parametrize("more", [{}, MARK], ids=["plain", "marked"])
def test_an_uploaded_file_is_read_and_no_other(url, tmp_path, more):
    path = upload(url, "mine.png", as_bytes("PNG"))
    status, events = call(url, {"path": path, **more}, f"good{len(more)}")
    assert status == 200
    assert "where the model looked" in events
    (tmp_path / "secret.png").write_bytes(as_bytes("PNG"))
    for secret in (str(tmp_path / "secret.png"), f"{path}/../../../secret.png", "secret.png", "file:///etc/passwd"):
        status, events = call(url, {"path": secret, **more}, "bad")
        assert (status, json.loads(events)["detail"]) == (403, "Only files that were uploaded to this page are read.")


def test_gradio_itself_refuses_other_files_without_the_guard(applications, tmp_path):
    """Two locks: this one is gradio's own, which it leaves open for pages that are mounted."""
    from tests.serving.fake_model import running_application

    (tmp_path / "uploads").mkdir()
    (tmp_path / "secret.png").write_bytes(as_bytes("PNG"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
        guard = web_page.make_page(applications, tmp_path / "uploads")
        with running_application(guard.application) as (url, _):
            _, events = call(url, {"path": str(tmp_path / "secret.png"), **MARK}, "s")
    assert '"success":false' in events.replace(" ", "")
    assert not list((tmp_path / "uploads").rglob("secret.png"))


def test_a_url_is_never_fetched(url):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/photo.png"
        assert call(url, {"path": address, "url": address, **MARK}, "u")[0] == 403
        for route in (f"/gradio_api/file={address}", f"/gradio_api/proxy={address}"):
            with pytest.raises(urllib.error.HTTPError, match="40[34]"):
                urllib.request.urlopen(url + route)
        listening.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listening.accept()


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("queue/join", {"data": [], "fn_index": -1, "session_hash": "x"}, "application/json"),
        ("queue/join", b'{"data": [], "fn_index": NaN}', "application/json"),
        (
            "upload",
            b'--x\r\nContent-Disposition: form-data; name="files"\r\n\r\na\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
    ],
    ids=["function", "number", "upload"],
)
def test_what_gradio_fails_at_is_refused(url, path, content, kind):
    status, answer = post(url, f"/gradio_api/{path}", content, **{"content-type": kind})
    assert (status, json.loads(answer)) == (400, {"detail": "The page cannot answer this request."})


def test_a_click_on_a_sample_gives_its_photo(url):
    """As a browser sends it, past the queue."""
    with urllib.request.urlopen(f"{url}/config") as response:
        dependencies = json.load(response)["dependencies"]
    number = next(one["id"] for one in dependencies if one["api_name"] == "load_example")
    body = {"data": [1], "fn_index": number, "session_hash": "sample", "trigger_id": None}
    status, answer = post(url, "/gradio_api/run/load_example", body)
    assert status == 200
    path = json.loads(answer)["data"][0]["value"]["path"]
    with urllib.request.urlopen(f"{url}/gradio_api/file={path}") as response:
        assert response.read().startswith(b"\xff\xd8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_uploads_are_deleted_when_the_page_is_ended(tmp_path, name):
    program = """
from attention_apps.cli import web_page
web_page.run_page(dict.fromkeys(web_page.TABS), "127.0.0.1", 0, lambda url: print(url, flush=True))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment) as page:
        try:
            url = page.stdout.readline().strip()
            wait_until_it_answers(url)
            path = Path(upload(url, "mine.png", as_bytes("PNG")))
            assert path.is_file()
            assert path.is_relative_to(tmp_path)
            page.send_signal(getattr(signal, name))
            page.wait(120)
        finally:
            page.kill()
    assert list(tmp_path.glob("attention_apps_*")) == []
    assert not path.exists()


def wait_until_it_answers(url):
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/config").close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} never answered")


def test_a_tab_without_a_model_says_so(tmp_path):
    with served(dict.fromkeys(web_page.TABS), tmp_path) as url, urllib.request.urlopen(f"{url}/config") as response:
        page = response.read().decode()
    for option, name in (
        ("captioner", "show_attend_tell_coco"),
        ("recognizer", "moonshine_tiny_english"),
        ("summarizer", "pointer_generator_headlines"),
        ("translator", "translation_multi30k_en_de"),
    ):
        assert f"<code>{name}</code> is not installed" in page
        assert f"<code>attention-apps demo --{option} FOLDER</code>" in page


def test_the_command_loads_what_it_is_given_and_opens_the_page(applications, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preset, "presets_root", lambda: tmp_path / "none")
    applications[TEXTS].save(tmp_path / "mine")
    shown, opened = [], []

    def run_page(applications, host, port, announce, allowed_hosts, names):
        shown.append((applications, host, port, allowed_hosts))
        mine = str(tmp_path / "mine") if len(shown) == 1 else None
        assert names == {PHOTOS: None, SPEECH: None, TEXTS: mine, TRANSLATIONS: None}
        announce("http://127.0.0.1:1234")

    monkeypatch.setattr(demo, "run_page", run_page)
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["demo", "--summarizer", str(tmp_path / "mine"), "--port", "0", "--allow-host", "my.lan"]) == 0
    ((found, host, port, allowed_hosts),) = shown
    assert (host, port, allowed_hosts) == ("127.0.0.1", 0, ["my.lan"])
    assert {task: type(one).__name__ for task, one in found.items()} == {
        PHOTOS: "NoneType",
        SPEECH: "NoneType",
        TEXTS: "TextSummarizer",
        TRANSLATIONS: "NoneType",
    }
    assert opened == ["http://127.0.0.1:1234"]
    assert "the page is at http://127.0.0.1:1234" in capsys.readouterr().err
    assert main(["demo", "--no-browser", "--quiet", "--host", "0.0.0.0"]) == 0
    assert len(opened) == 1
    assert capsys.readouterr().err == ""
    assert main(["demo", "--captioner", "nothing"]) == 2
    assert "Received: 'nothing'" in capsys.readouterr().err


def test_without_gradio_the_command_names_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["demo"]) == 2
    assert "pip install 'attention_apps[demo]'" in capsys.readouterr().err
