"""A real browser for tests: Chromium, headless, driven over the W3C WebDriver protocol, which is JSON over HTTP."""

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest
from PIL import Image

_ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=900,900"]
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_SECONDS = 60


class Browser:
    """One page at a time."""

    def __init__(self, address, arguments=()):
        self._address = address
        chromium = {"binary": shutil.which("chromium"), "args": [*_ARGUMENTS, *arguments]}
        wanted = {"goog:chromeOptions": chromium, "goog:loggingPrefs": {"performance": "ALL"}}
        capabilities = {"alwaysMatch": wanted}
        self._session = f"/session/{self._send('/session', {'capabilities': capabilities})['sessionId']}"

    def open(self, page):
        """Opens a file, by its path, or a URL."""
        url = page if isinstance(page, str) else page.resolve().as_uri()
        self._send(f"{self._session}/url", {"url": url})

    def run(self, script):
        """The value of a script that ends with `return`."""
        return self._send(f"{self._session}/execute/sync", {"script": script, "args": []})

    def wait_for(self, script, seconds=2 * _SECONDS):
        """The value of a script as soon as it is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.1)
        return value

    def click(self, selector):
        self._send(f"{self._session}/element/{self._find(selector)}/click", {})

    def type(self, selector, text):
        """Types into the first element that matches, or gives it the path of a file."""
        self._send(f"{self._session}/element/{self._find(selector)}/value", {"text": str(text)})

    def requested_urls(self):
        """What was asked of the network, or of this computer, since the last call."""
        entries = self._send(f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def hover(self, selector):
        """Moves the pointer over the middle of the first element that matches."""
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {_ELEMENT: self._find(selector)}}
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
        self._send(f"{self._session}/actions", {"actions": [pointer]})

    def press_tab(self):
        keys = [{"type": kind, "value": "\ue004"} for kind in ("keyDown", "keyUp")]
        self._send(f"{self._session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def resize(self, width, height):
        """Changes the size of the window, its frame included."""
        self._send(f"{self._session}/window/rect", {"width": width, "height": height})

    def screenshot(self):
        """What is seen, `(height, width, 3)`."""
        png = base64.b64decode(self._send(f"{self._session}/screenshot"))
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))

    def close(self):
        self._send(self._session, method="DELETE")

    def _find(self, selector):
        return self._send(f"{self._session}/element", {"using": "css selector", "value": selector})[_ELEMENT]

    def _send(self, path, content=None, method=None):
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + path, data, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            return json.load(response)["value"]


@contextlib.contextmanager
def open_browser(*arguments):
    """A browser, with further arguments of Chromium; the test is skipped where there is none."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} (Debian: apt install chromium chromium-driver)")
    port = _free_port()
    command = ["chromedriver", f"--port={port}", "--silent"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait_for(port)
        browser = Browser(f"http://127.0.0.1:{port}", arguments)
        yield browser
        browser.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGTERM)
        driver.wait(_SECONDS)


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _wait_for(port):
    end = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
