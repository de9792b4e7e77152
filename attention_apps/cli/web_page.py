"""The page of `attention-apps demo`: a tab for photos, one for recordings, one for texts. It needs no network."""

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from attention_apps.cli.samples import PHOTOS, TEXTS, sample_photos
from attention_apps.cli.tasks import application_class, search_options
from attention_apps.cli.web_answers import STYLE, caption_answer, message, summary_answer, transcript_answer

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
# The browser loads nothing from elsewhere, whatever a version of gradio would like it to.
_POLICY = b"default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'self'"
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


def run_page(applications: Mapping[str, Any], host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serves the page until it is interrupted; what was uploaded is then deleted.

    Args:
        applications: by task; `None` where there is none.
        host, port: where to listen; 0 is any free port.
        announce: told the URL of the page.
    """
    from attention_apps.serving.server import run_asgi

    with tempfile.TemporaryDirectory(prefix="attention_apps_") as uploads:
        os.environ["GRADIO_TEMP_DIR"] = uploads
        run_asgi(make_page(applications), host, port, announce, timeout_graceful_shutdown=_SHUTDOWN_SECONDS)


def make_page(applications: Mapping[str, Any]) -> Callable:
    """The page as an ASGI application; for the argument see `run_page`."""
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
                        tab.fill(applications[task])
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
    return _with_policy(application)


def _photo_tab(captioner: Any) -> None:
    import gradio

    wait = message("Drop a photo on the left, take one with the camera, or choose one of the samples.")
    with gradio.Row():
        with gradio.Column(scale=2):
            photo = gradio.Image(
                label="Photo", sources=["upload", "webcam", "clipboard"], type="filepath", height=320, buttons=[]
            )
            gradio.Examples(_sample_files(), photo, label="Photos to try")
        with gradio.Column(scale=3):
            answer = gradio.HTML(wait)
    method = partial(captioner.caption, options=more_alternatives(captioner))
    _answer_files(photo, answer, method, caption_answer, wait)


def _speech_tab(recognizer: Any) -> None:
    import gradio

    wait = message("Drop a recording on the left (WAV, FLAC, OGG or MP3), or record one with the microphone.")
    with gradio.Row():
        with gradio.Column(scale=1):
            recording = gradio.Audio(label="Recording", sources=["upload", "microphone"], type="filepath", buttons=[])
        with gradio.Column(scale=2):
            answer = gradio.HTML(wait)
    method = partial(recognizer.transcribe, options=more_alternatives(recognizer), quiet=True)
    _answer_files(recording, answer, method, transcript_answer, wait)


def _text_tab(summarizer: Any) -> None:
    import gradio

    with gradio.Row():
        with gradio.Column(scale=2):
            text = gradio.Textbox(label="Text", lines=9, max_lines=24, placeholder="Paste a paragraph of news here.")
            button = gradio.Button("Summarize", variant="primary")
            names = [" ".join(one.split()[:5]) + " …" for one in TEXTS]
            gradio.Examples([[one] for one in TEXTS], text, label="Texts to try", example_labels=names)
        with gradio.Column(scale=3):
            answer = gradio.HTML(message("Paste a text on the left, or choose one of the samples, and summarize it."))
    method = partial(summarizer.summarize, options=more_alternatives(summarizer))
    events = [button.click, text.submit]
    gradio.on(events, partial(_respond, method, summary_answer), text, answer, api_visibility="private")


class Tab(NamedTuple):
    """The title of a tab, the command's option with its trained model, and what makes it for an application."""

    title: str
    option: str
    fill: Callable[[Any], None]


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


def more_alternatives(application: Any) -> Any:
    """The decoding options of a preset, with alternatives."""
    asked = argparse.Namespace(beam_size=None, n_best=NUM_BEST, max_length=None)
    return search_options(application.config.decoding, asked)


def _answer_files(component: Any, answer: Any, method: Callable, show: Callable, wait: str) -> None:
    """Answers each file that comes into a component, as it was uploaded: what is wrong with it, we say ourselves."""

    def respond(upload: Mapping[str, Any] | None) -> str:
        if upload is None:
            return wait
        path = Path(upload["path"] or "").resolve()
        if not path.is_relative_to(Path(os.environ["GRADIO_TEMP_DIR"]).resolve()):
            return message(f"{path} was not uploaded.", is_problem=True)
        return _respond(method, show, path)

    component.change(respond, component, answer, preprocess=False, api_visibility="private")


def _respond(method: Callable, show: Callable, source: Any) -> str:
    try:
        return show(method(source))
    except (ValueError, TypeError, OSError) as error:
        # Of an upload, the user knows the name but not the folder.
        folder = f"{source.parent}{os.sep}" if isinstance(source, Path) else ""
        return message(str(error).replace(folder, ""), is_problem=True)


def _sample_files() -> list[str]:
    """The sample photos, written to where uploads go."""
    from PIL import Image

    paths = [Path(os.environ["GRADIO_TEMP_DIR"]) / f"{name}.jpg" for name in PHOTOS]
    for path, pixels in zip(paths, sample_photos(), strict=True):
        Image.fromarray(pixels).save(path, quality=90)
    return [str(path) for path in paths]


def _with_policy(application: Callable) -> Callable:
    async def answer(scope: Mapping[str, Any], receive: Callable, send: Callable) -> None:
        async def send_with_policy(event: dict[str, Any]) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event["headers"], (b"content-security-policy", _POLICY)]
            await send(event)

        await application(scope, receive, send_with_policy)

    return answer
