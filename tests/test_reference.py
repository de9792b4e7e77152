"""The API reference is built from docstrings without a warning, and has every public name."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    *("attention_apps", "applications", "layers", "models", "decoding"),
    *("data", "preprocessing", "training", "metrics", "serving"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for name in ("mkdocs", "mkdocstrings"):
        pytest.importorskip(name, reason="the reference needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def read(site, package):
    return (site / "reference" / package / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_on_its_page(site, package):
    module = importlib.import_module("attention_apps" if package == "attention_apps" else f"attention_apps.{package}")
    names = [name for name in module.__all__ if name != "__version__" and name not in _subpackages(module)]
    headings = [name.split(".")[-1].lower() for name in re.findall(r'<h2 id="([^"]+)"', read(site, package))]
    assert sorted(headings) == sorted(name.lower() for name in names)


def _subpackages(module):
    return {path.parent.name for path in Path(module.__file__).parent.glob("*/__init__.py")}


def test_the_sections_of_docstrings_are_rendered(site):
    page = read(site, "layers")
    for section in ("Args", "Call arguments", "Returns", "Example", "Reference"):
        assert f"<p><strong>{section}</strong></p>" in page
    assert "<li><code>query</code>: " in page
    for package in PACKAGES:
        prose = re.sub(r"<details.*?</details>", "", read(site, package), flags=re.DOTALL)  # the source code
        assert not re.search(r"(Args|Call arguments|Returns|Raises|Example|Reference|Attributes):\s*(<|$)", prose)


def test_the_methods_of_an_application_are_there_with_those_it_inherits(site):
    page = read(site, "applications")
    for name in ("caption", "from_preset", "save", "fit", "evaluate", "export", "run"):
        assert f'ImageCaptioner.{name}"' in page


def test_results_options_and_configurations_are_in_the_reference(site):
    page = read(site, "applications")
    for name in ("Caption", "Transcript", "Summary", "Compression", "SummaryOptions", "RecognizerConfig"):
        assert f'.{name}" class="doc doc-heading"' in page, name


def test_the_names_of_the_top_package_link_to_their_pages(site):
    links = re.findall(
        r'<h2 id="imagecaptioner">.*?href="([^"]*)"[^>]*>\s*ImageCaptioner', read(site, "attention_apps"), re.DOTALL
    )
    assert "../applications/#attention_apps.applications.captioning.captioner.ImageCaptioner" in links


def test_the_pages_of_the_docs_are_there(site):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.stem / "index.html").is_file()
    assert "where the model looked" in (site / "index.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_from_the_network(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'(?:src|<link[^>]*href)="(?:https?:)?//[^"]*"', text), page
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//|@import", style.read_text(encoding="utf-8")), style
