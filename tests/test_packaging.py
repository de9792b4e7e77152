"""The wheel: what is in it, and that it works away from the source tree."""

import email
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import attention_apps

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from an sdist, as an index would have it built."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_the_presets_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"attention_apps", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}
    package = ROOT / "attention_apps"
    modules = {str(path.relative_to(ROOT)) for ending in ("py", "pyi") for path in package.rglob(f"*.{ending}")}
    inside = {
        name for name in names if name.startswith("attention_apps/") and not name.startswith("attention_apps/weights/")
    }
    recordings = {str(path.relative_to(ROOT)) for path in (package / "cli" / "recordings").iterdir()}
    assert inside == modules | recordings | {"attention_apps/py.typed"}
    presets = {
        f"attention_apps/weights/{path.relative_to(ROOT / 'weights')}" for path in (ROOT / "weights").glob("*/*")
    }
    assert presets <= set(names)


def test_the_wheel_says_which_versions_of_python_it_supports(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    assert metadata["Version"] == attention_apps.__version__


def test_the_wheel_is_small_enough_for_an_index(wheel):
    assert wheel.stat().st_size < 100e6


def test_the_sdist_holds_the_presets_too(wheel):
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "weights").glob("*/*")} <= inside


def test_the_installed_wheel_runs_away_from_the_source_tree(wheel, tmp_path):
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import attention_apps, numpy
from attention_apps.layers import AdditiveAttention
assert attention_apps.__file__.startswith(sys.argv[1]), attention_apps.__file__
print(AdditiveAttention(4)(numpy.ones((1, 2, 3)), numpy.ones((1, 5, 3)))[1].shape)
text = "The old bridge over the river, which was built in 1890, will be closed for repairs in May, the city said."
print(bool(attention_apps.load("sentence_compression_google").compress(text).text))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(target)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["(1, 2, 5)", "True"]
