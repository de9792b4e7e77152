"""The page of `attention-apps demo`: a tab for photos, one for recordings, two for texts. It needs no network."""

import contextlib
import html
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from attention_apps.applications.preset import find_preset, preset_names, read_task
from attention_apps.applications.tasks import TASKS, application_class, load
from attention_apps.cli.demo_content import (
    DESCRIPTIONS,
    PHOTOS,
    STYLE,
    TEXTS,
    caption_answer,
    message,
    sample_photos,
    sample_recordings,
    text_answer,
    transcript_answer,
)
from attention_apps.cli.serving_commands import describe
from attention_apps.cli.web_guard import PageGuard

NUM_BEST = 4
MAX_BEAM_SIZE = 20
_HEAD = """<h1>attention_apps</h1>
<p>Give it a photo, a recording or a text, and see where the model looked for each word that it wrote.</p>"""
_STYLE = f""".gradio-container {{ width: 100% !important; max-width: 1260px !important; margin: 0 auto !important; }}
.head {{ display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 1rem; }}
.head h1 {{ font-size: 1.3rem; font-weight: 700; margin: 0; }}
.head p {{ color: color-mix(in srgb, var(--body-text-color) 65%, transparent); margin: 0; }}
.settings .block {{ padding: 8px 10px !important; }}
.settings span {{ white-space: nowrap; }}
.settings span, .settings input {{ font-size: .75rem !important; }}
@media (min-width: 701px) {{ #speech_recognition .looked {{ max-height: 250px; }} }}
/* On a phone the answer comes right after the photo, the recording, or the text and its button. */
@media (max-width: 700px) {{
  .halves {{ flex-flow: column nowrap !important; align-items: stretch !important; }}
  .halves > .source {{ display: contents !important; }}
  .halves > .source > * {{ order: 2; }}
  .halves > .source > :first-child, .halves > .source > button {{ order: 0; }}
  .halves > .result {{ order: 1; min-width: 0 !important; }}
}}
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
    """Import gradio, which is an extra, with its network access switched off."""
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
    names: Mapping[str, str | None] | None = None,
) -> None:
    """Serve the page until it is interrupted or terminated, then delete all uploads.

    Args:
        applications: by task; `None` where there is no model.
        host, port: where to listen; 0 is any free port.
        announce: called with the URL of the page.
        allowed_hosts, names: see `make_page`.
    """
    from attention_apps.serving.server import run_asgi

    with _exit_on_signals(), _private_folder() as uploads:
        page = make_page(applications, uploads, [host, *allowed_hosts], names)
        run_asgi(page, host, port, announce, timeout_graceful_shutdown=_SHUTDOWN_SECONDS)


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the process with an exception, so that it cleans up.

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
    """Yield a folder for uploads and all other temporary files of this process. It is deleted at the end."""
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


def make_page(
    applications: Mapping[str, Any],
    uploads: Path,
    allowed_hosts: Collection[str] = (),
    names: Mapping[str, str | None] | None = None,
) -> PageGuard:
    """Make the page as an ASGI application.

    Args:
        applications: see `run_page`.
        uploads: the folder for uploads. No other file can be read through the page.
        allowed_hosts: host names under which the page is reached; loopback names always work.
        names: the presets of the applications, by task; by default the tasks' own.
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
                        name = (names or {}).get(task) or application_class(task).default_preset
                        tab.fill(TabModels((task, *tab.other_tasks), applications[task], name), uploads)
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


class TabModels:
    """The trained models that a tab offers. The others are loaded when they are first asked.

    Args:
        tasks: of the presets that are offered.
        application: the model that the page opens with.
        name: the name or folder of its preset.
    """

    def __init__(self, tasks: Collection[str], application: Any, name: str):
        self.default = name
        self.application = application
        self._loaded = {name: application}
        self._lock = threading.Lock()
        others = [one for one in preset_names() if one != name and read_task(find_preset(one)) in tasks]
        self.names = [name, *others]

    def answer(self, source: Any, name: str, beam_size: float, num_best: float, **options: Any) -> Any:
        """Return the result of a source. The settings are checked, because anything may send requests."""
        if name not in self.names:
            raise ValueError("There is no such preset.")
        if not 1 <= beam_size <= MAX_BEAM_SIZE or not 1 <= num_best <= MAX_BEAM_SIZE:
            raise ValueError(f"The beam size and the number of alternatives must be from 1 to {MAX_BEAM_SIZE}.")
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = load(name)
        application = self._loaded[name]
        verb = getattr(application, TASKS[application.task][2])
        # A search gives at most as many texts as it has hypotheses.
        return verb(source, beam_size=int(max(beam_size, num_best)), num_best=int(num_best), **options)

    def about(self, name: str) -> str:
        """Say what a preset is made for and what not, from its card."""
        try:
            card = describe(find_preset(name)) if name in self.names else {}
        except (ValueError, OSError):  # a page may be made for an application without a preset
            card = {}
        entries = [("Made for", card.get("for")), ("Not for", card.get("not_for"))]
        shown = "".join(f"<p><strong>{label}:</strong> {html.escape(text)}.</p>" for label, text in entries if text)
        return f'<div class="about">{shown}</div>'


def _settings(models: TabModels) -> list[Any]:
    """Add and return the components for the preset, the beam size and the number of alternatives."""
    import gradio

    labelled = [(Path(name).name, name) for name in models.names]
    number = partial(gradio.Number, minimum=1, maximum=MAX_BEAM_SIZE, precision=0, min_width=60)
    with gradio.Group(elem_classes="settings"), gradio.Row():
        preset = gradio.Dropdown(labelled, value=models.default, label="Preset", scale=3, min_width=270)
        beam_size = number(models.application.config.decoding.beam_size, label="Beam size")
        num_best = number(NUM_BEST, label="Alternatives")
    purpose = gradio.HTML(models.about(models.default))
    preset.change(models.about, preset, purpose, preprocess=False, api_visibility="private")
    return [preset, beam_size, num_best]


def _photo_tab(models: TabModels, uploads: Path) -> None:
    import gradio
    from PIL import Image

    samples = [uploads / f"{name}.jpg" for name in PHOTOS]
    for path, pixels in zip(samples, sample_photos(), strict=True):
        Image.fromarray(pixels).save(path, quality=90)
    component = partial(
        gradio.Image, label="Photo", sources=["upload", "webcam", "clipboard"], type="filepath", height=230, buttons=[]
    )
    hint = "Drop a photo, take one with the camera, or choose one of the samples."
    _fill_file_tab(models, uploads, component, hint, samples, caption_answer)


def _speech_tab(models: TabModels, uploads: Path) -> None:
    import gradio

    samples = [Path(shutil.copy(path, uploads / path.name)) for path in sample_recordings()]
    component = partial(gradio.Audio, label="Recording", sources=["upload", "microphone"], type="filepath", buttons=[])
    hint = "Drop a recording, record one with the microphone, or choose one of the samples."
    _fill_file_tab(models, uploads, component, hint, samples, transcript_answer, quiet=True)


def _fill_file_tab(
    models: TabModels,
    uploads: Path,
    make_component: Callable[[], Any],
    hint: str,
    samples: Sequence[Path],
    show: Callable,
    **options: Any,
) -> None:
    """Make a tab that answers each file that is uploaded, and again when a setting changes.

    Gradio does not read the file first, so that errors are our own messages.

    Args:
        show: makes HTML of a result.
        options: of the application's method.
    """
    import gradio

    wait = message(hint)
    with gradio.Row(elem_classes="halves"):
        with gradio.Column(scale=2, elem_classes="source"):
            component = make_component()
            gradio.Examples([str(path) for path in samples], component, label=f"{component.label}s to try")
            settings = _settings(models)
        with gradio.Column(scale=3, elem_classes="result"):
            answer = gradio.HTML(wait)

    def respond(upload: Mapping[str, Any] | None, *chosen: Any) -> str:
        if upload is None:
            return wait
        path = Path(upload["path"] or "").resolve()
        if not path.is_relative_to(uploads.resolve()):
            return message("This file was not uploaded.", is_problem=True)
        return _respond(partial(models.answer, **options), show, path, *chosen)

    events = [one.change for one in (component, *settings)]
    gradio.on(events, respond, [component, *settings], answer, preprocess=False, api_visibility="private")


def _text_tab(models: TabModels, uploads: Path, verb: str, hint: str, samples: Sequence[str]) -> None:
    import gradio

    with gradio.Row(elem_classes="halves"):
        with gradio.Column(scale=2, elem_classes="source"):
            text = gradio.Textbox(label="Text", lines=7, max_lines=12, placeholder=hint)
            button = gradio.Button(verb, variant="primary")
            names = [" ".join(one.split()[:5]) + " …" for one in samples]
            gradio.Examples([[one] for one in samples], text, label="Texts to try", example_labels=names)
            settings = _settings(models)
        with gradio.Column(scale=3, elem_classes="result"):
            wait = f"Paste a text, or choose one of the samples, and {verb.lower()} it."
            answer = gradio.HTML(message(wait))
    respond = partial(_respond, models.answer, text_answer)
    gradio.on([button.click, text.submit], respond, [text, *settings], answer, api_visibility="private")


class Tab(NamedTuple):
    """The title of a tab, the command's option with its trained model, and what makes it for the tab's models.

    Presets of `other_tasks` are offered as well.
    """

    title: str
    option: str
    fill: Callable[[TabModels, Path], None]
    other_tasks: tuple[str, ...] = ()


TABS = {
    "image_captioning": Tab("Photo", "captioner", _photo_tab),
    "speech_recognition": Tab("Speech", "recognizer", _speech_tab),
    "text_summarization": Tab(
        "Text",
        "summarizer",
        partial(_text_tab, verb="Summarize", hint="Paste a paragraph of news here.", samples=TEXTS),
        ("sentence_compression",),
    ),
    "machine_translation": Tab(
        "Translation",
        "translator",
        partial(_text_tab, verb="Translate", hint="Write what is in a photo, in English.", samples=DESCRIPTIONS),
    ),
}


def _without_model(task: str) -> str:
    return message(
        f"The preset `{application_class(task).default_preset}` is not installed, so this tab has no model yet. "
        f"Train one on your own data with `attention-apps train {task}`, and open the page with "
        f"`attention-apps demo --{TABS[task].option} FOLDER`."
    )


def _respond(method: Callable, show: Callable, source: Any, *chosen: Any) -> str:
    try:
        return show(method(source, *chosen))
    except (ValueError, TypeError, OSError) as error:
        # Of an upload, the user knows the name but not the folder.
        folder = f"{source.parent}{os.sep}" if isinstance(source, Path) else ""
        return message(str(error).replace(folder, ""), is_problem=True)
