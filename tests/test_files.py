import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attention_apps import files
from tests.fault_injection import every_error, every_kill, leftovers

BOTH = pytest.mark.parametrize("faults", [every_error, every_kill])


@BOTH
def test_a_failed_replacement_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch, faults):
    path, found = tmp_path / "file", set()

    def prepare():
        path.write_bytes(b"old content")

    for _ in faults(monkeypatch, lambda: files.replace_file(path, b"new"), prepare):
        found.add(path.read_bytes())
        assert faults is every_kill or leftovers(tmp_path) == []
    assert found == {b"old content", b"new"}


def write_folder(folder, text):
    with files.replaced_folder(folder) as new:
        for name in ("a", "b"):
            files.write_file(new / name, text)


@BOTH
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_failed_folder_leaves_the_old_one_or_the_new_one(tmp_path, monkeypatch, faults, can_exchange):
    folder, found = tmp_path / "folder", set()
    if not can_exchange:
        monkeypatch.setattr(files, "exchange", lambda first, second: False)

    def prepare():
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        write_folder(folder, b"old")

    for _ in faults(monkeypatch, lambda: write_folder(folder, b"new"), prepare):
        files.recover_folder(folder)
        assert sorted(os.listdir(folder)) == ["a", "b"]
        contents = {path.read_bytes() for path in folder.iterdir()}
        assert len(contents) == 1
        found |= contents
        assert faults is every_kill or leftovers(tmp_path) == []
    assert found == {b"old", b"new"}


def test_recovery_leaves_an_existing_folder_alone(tmp_path):
    folder = tmp_path / "folder"
    write_folder(folder, b"new")
    write_folder(files.kept_folder(folder), b"old")
    files.recover_folder(folder)
    assert (folder / "a").read_bytes() == b"new"
    shutil.rmtree(folder)
    files.recover_folder(folder)
    assert (folder / "a").read_bytes() == b"old"


@pytest.mark.parametrize("name", [".", "inner/..", "../here"])
def test_the_old_folder_is_named_after_the_absolute_folder(tmp_path, monkeypatch, name):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert files.kept_folder(Path(name)) == tmp_path / ".here.old"
    assert files.kept_folder(Path("/")) == Path("/..old")


def test_two_folders_are_exchanged(tmp_path):
    write_folder(tmp_path / "one", b"1")
    write_folder(tmp_path / "two", b"2")
    if not files.exchange(tmp_path / "one", tmp_path / "two"):
        pytest.skip("this system cannot exchange two names")
    assert (tmp_path / "one" / "a").read_bytes() == b"2"
    assert (tmp_path / "two" / "a").read_bytes() == b"1"


def test_lines_are_appended(tmp_path):
    files.append_to_file(tmp_path / "log", b"one\n")
    files.append_to_file(tmp_path / "log", b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_a_locked_folder_refuses_a_second_holder_until_it_is_released(tmp_path):
    folder = tmp_path / "new"
    with (
        files.locked_folder(folder),
        pytest.raises(BlockingIOError, match=f"{folder} is in use by another process. Wait"),
        files.locked_folder(folder),
    ):
        pass
    with files.locked_folder(folder):
        assert folder.is_dir()


FULL_DISK = """
import errno, resource, sys
from pathlib import Path
from attention_apps import files
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = Path(sys.argv[1])
for write in (files.replace_file, files.append_to_file):
    try:
        write(folder / "file", b"x" * 5000)
    except OSError as error:
        assert error.errno in files.DISK_FULL, error
        print(error.filename)
"""


def test_a_full_disk_is_an_error_that_names_the_file_and_keeps_the_old_one(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    temporary, appended = done.stdout.split()
    assert temporary.startswith(str(tmp_path / ".file-"))
    assert appended == str(tmp_path / "file")
    assert leftovers(tmp_path) == []
    assert (tmp_path / "file").read_bytes().startswith(b"old")


def test_visible_files_with_these_endings_are_found_in_the_order_of_their_names(tmp_path):
    for name in ("b.JPG", "a.jpg", ".c.jpg", "d.txt", "in/e.jpg", ".git/f.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = files.walk_files(os.walk(tmp_path), (".jpg",))
    assert [os.path.relpath(path, tmp_path) for path in found] == ["a.jpg", "b.JPG", os.path.join("in", "e.jpg")]


def test_a_folder_has_no_pipes_and_a_broken_link_stays_to_be_reported(tmp_path):
    os.mkfifo(tmp_path / "a.jpg")
    (tmp_path / "b.jpg").symlink_to("nowhere")
    (tmp_path / "c.jpg").touch()
    assert files.folder_files(str(tmp_path), (".jpg",)) == [str(tmp_path / name) for name in ("b.jpg", "c.jpg")]


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="the system cannot refuse links")
def test_links_in_a_folder_are_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"kept")
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("training.csv", ".lock"):
        (folder / name).symlink_to(precious)

    def lock(path):
        with files.locked_folder(path.parent):
            pass

    for write in (lock, lambda path: files.write_file(path, b"new"), lambda path: files.append_to_file(path, b"new")):
        with pytest.raises(OSError, match=r"It is a link\. Links are not followed.*run"):
            write(folder / "training.csv")
    files.replace_file(folder / "training.csv", b"new")
    assert precious.read_bytes() == b"kept"
    assert (folder / "training.csv").read_bytes() == b"new"
