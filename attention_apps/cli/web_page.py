"""The page of `attention-apps demo`: a tab for photos, one for recordings, one for texts. It needs no network."""

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from attention_apps.applications.tasks import application_class
from attention_apps.cli.samples import PHOTOS, TEXTS, sample_photos
from attention_apps.cli.web_answers import STYLE, caption_answer, message, summary_answer, transcript_answer
from attention_apps.cli.web_guard import PageGuard

NUM_BEST = 4
_HEAD = """<h1>attention_apps</h1>
<p>Give it a photo, a recording or a text, and see where the model looked for each word that it wrote.</p>"""
_STYLE = f""".gradio-container {{ width: 100% !important; max-width: 1180px !important; margin: 0 auto !important; }}
.head h1 {{ font-size: 1.7rem; font-weight: 700; margin: 0; }}
.head p {{ color: color-mix(in srgb, var(--body-text-color) 65%, transparent); margin: .1rem 0 0; }}
{STYLE}"""
_FONTS = ("system-ui", "sans-serif")
_MONOSPACED_FONTS = ("ui-monospace", "monospace")
# What is to be in the environment before gradio is imported.
_SETTINGS = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_RUN_HISTORY": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
}
_MAX_UPLOAD = 200 << 20
_SHUTDOWN_SECONDS = 2


def import_gradio() -> Any:
    """The module that makes pages, which is in an extra of its own; it is told to ask nothing of the network."""
    os.environ.update(_SETTINGS)
    try:
        import gradio
    except ImportError:
        raise ValueError("The page needs the package gradio: `pip install 'attention_apps[demo]'`") from None
    return gradio


def run_page(
    applications: Mapping[str, Any],
    host: str,
    port: int,
    announce: Callable[[str], None],
    allowed_hosts: Collection[str] = (),
) -> None:
    """Serves the page until it is interrupted or terminated, then deletes all uploads.

    Args:
        applications: by task; `None` where there is no model.
        host, port: where to listen; 0 is any free port.
        announce: called with the URL of the page.
        allowed_hosts: see `make_page`.
    """
    from attention_apps.serving.server import run_asgi

    with _exit_on_signals(), _private_folder() as uploads:
        page = make_page(applications, uploads, [host, *allowed_hosts])
        run_asgi(page, host, port, announce, timeout_graceful_shutdown=_SHUTDOWN_SECONDS)


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the process with an exception, so that it cleans up.

    Uvicorn catches SIGTERM, shuts down, and then raises it again for the handler set here.
    """

    def leave(number: int, frame: Any) -> None:
        for other in handlers:  # a second signal must not interrupt the cleanup
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    handlers: dict[int, Any] = {signal.SIGTERM: leave}
    if hasattr(signal, "SIGHUP"):  # not on Windows
        handlers[signal.SIGHUP] = lambda number, frame: signal.raise_signal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        handlers.clear()
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    """A folder for uploads and all other temporary files of this process; deleted at the end."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="attention_apps_", ignore_cleanup_errors=True) as folder:
        uploads, work = Path(folder, "uploads"), Path(folder, "work")
        uploads.mkdir()
        work.mkdir()
        tempfile.tempdir = str(work)
        try:
            yield uploads
        finally:
            tempfile.tempdir = before


def make_page(applications: Mapping[str, Any], uploads: Path, allowed_hosts: Collection[str] = ()) -> PageGuard:
    """Makes the page as an ASGI application.

    Args:
        applications: see `run_page`.
        uploads: the folder for uploads. No other file can be read through the page.
        allowed_hosts: host names under which the page is reached; loopback names always work.
    """
    os.environ["GRADIO_TEMP_DIR"] = str(uploads)
    gradio = import_gradio()
    from fastapi import FastAPI

    with gradio.Blocks(title="attention_apps", analytics_enabled=False) as page:
        gradio.HTML(_HEAD, elem_classes="head")
        first = next((task for task in TABS if applications[task] is not None), None)
        with gradio.Tabs(selected=first):
            for task, tab in TABS.items():
                with gradio.Tab(tab.title, id=task, elem_id=task):
                    if applications[task] is None:
                        gradio.HTML(_without_model(task))
                    else:
                        tab.fill(applications[task], uploads)
    # `launch` sets this and `mount_gradio_app` does not: without it, gradio copies any file that a request names.
    page.has_launched = True
    application = gradio.mount_gradio_app(
        FastAPI(openapi_url=None),
        page,
        path="/",
        theme=gradio.themes.Default(font=_FONTS, font_mono=_MONOSPACED_FONTS),
        css=_STYLE,
        footer_links=[],
        max_file_size=_MAX_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
    )
    return PageGuard(application, uploads, allowed_hosts)


def _photo_tab(captioner: Any, uploads: Path) -> None:
    import gradio

    wait = message("Drop a photo on the left, take one with the camera, or choose one of the samples.")
    with gradio.Row():
        with gradio.Column(scale=2):
            photo = gradio.Image(
                label="Photo", sources=["upload", "webcam", "clipboard"], type="filepath", height=320, buttons=[]
            )
            gradio.Examples(_sample_files(uploads), photo, label="Photos to try")
        with gradio.Column(scale=3):
            answer = gradio.HTML(wait)
    method = partial(captioner.caption, num_best=NUM_BEST)
    _answer_files(photo, answer, method, caption_answer, wait, uploads)


def _speech_tab(recognizer: Any, uploads: Path) -> None:
    import gradio

    wait = message("Drop a recording on the left (WAV, FLAC, OGG or MP3), or record one with the microphone.")
    with gradio.Row():
        with gradio.Column(scale=1):
            recording = gradio.Audio(label="Recording", sources=["upload", "microphone"], type="filepath", buttons=[])
        with gradio.Column(scale=2):
            answer = gradio.HTML(wait)
    method = partial(recognizer.transcribe, num_best=NUM_BEST, quiet=True)
    _answer_files(recording, answer, method, transcript_answer, wait, uploads)


def _text_tab(summarizer: Any, uploads: Path) -> None:
    import gradio

    with gradio.Row():
        with gradio.Column(scale=2):
            text = gradio.Textbox(label="Text", lines=9, max_lines=24, placeholder="Paste a paragraph of news here.")
            button = gradio.Button("Summarize", variant="primary")
            names = [" ".join(one.split()[:5]) + " …" for one in TEXTS]
            gradio.Examples([[one] for one in TEXTS], text, label="Texts to try", example_labels=names)
        with gradio.Column(scale=3):
            answer = gradio.HTML(message("Paste a text on the left, or choose one of the samples, and summarize it."))
    method = partial(summarizer.summarize, num_best=NUM_BEST)
    events = [button.click, text.submit]
    gradio.on(events, partial(_respond, method, summary_answer), text, answer, api_visibility="private")


class Tab(NamedTuple):
    """The title of a tab, the command's option with its trained model, and what makes it for an application."""

    title: str
    option: str
    fill: Callable[[Any, Path], None]


TABS = {
    "image_captioning": Tab("Photo", "captioner", _photo_tab),
    "speech_recognition": Tab("Speech", "recognizer", _speech_tab),
    "text_summarization": Tab("Text", "summarizer", _text_tab),
}


def _without_model(task: str) -> str:
    return message(
        f"The preset `{application_class(task).default_preset}` is not installed, so this tab has no model yet. "
        f"Train one on your own data with `attention-apps train {task}`, and open the page with "
        f"`attention-apps demo --{TABS[task].option} FOLDER`."
    )


def _answer_files(component: Any, answer: Any, method: Callable, show: Callable, wait: str, uploads: Path) -> None:
    """Answers each file that is uploaded. Gradio does not read it first, so that errors are our own messages."""

    def respond(upload: Mapping[str, Any] | None) -> str:
        if upload is None:
            return wait
        path = Path(upload["path"] or "").resolve()
        if not path.is_relative_to(uploads.resolve()):
            return message("This file was not uploaded.", is_problem=True)
        return _respond(method, show, path)

    component.change(respond, component, answer, preprocess=False, api_visibility="private")


def _respond(method: Callable, show: Callable, source: Any) -> str:
    try:
        return show(method(source))
    except (ValueError, TypeError, OSError) as error:
        # Of an upload, the user knows the name but not the folder.
        folder = f"{source.parent}{os.sep}" if isinstance(source, Path) else ""
        return message(str(error).replace(folder, ""), is_problem=True)


def _sample_files(uploads: Path) -> list[str]:
    """Writes the sample photos to the folder for uploads."""
    from PIL import Image

    paths = [uploads / f"{name}.jpg" for name in PHOTOS]
    for path, pixels in zip(paths, sample_photos(), strict=True):
        Image.fromarray(pixels).save(path, quality=90)
    return [str(path) for path in paths]
