"""Durable writes, folder locks, and the files of a folder.

Presets, checkpoints, logs and caches are written through this module only. The weights of an export are written by
TensorFlow, then synced and renamed here. A test makes every single write, rename and fsync fail in turn and checks that
the old or the new state is complete.
"""

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no file locks of this kind
    fcntl = None  # type: ignore[assignment]

# The errors of a full disk: no space, no quota, a file over the limit of its process or file system.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


def write(file: FileIO, data: bytes) -> None:
    """Write bytes to an open file.

    Files must be opened with `buffering=0`. Otherwise closing a file after an error writes its buffer, fails again and
    hides the first error.
    """
    rest = memoryview(data)
    with _named(file.name):
        while rest:
            rest = rest[file.write(rest) :]


def sync(file: FileIO) -> None:
    """Wait until everything written to an open file is on disk."""
    with _named(file.name):
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    if os.name == "nt":
        return  # Windows cannot open folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder. An existing file with the new name is replaced."""
    os.replace(source, target)


def write_file(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on disk. A link is not followed."""
    with open(path, "wb", buffering=0, opener=_open_no_link) as file:
        write(file, data)
        sync(file)


def append_to_file(path: Path, data: bytes) -> None:
    """Append to a file, which is created if necessary. A link is not followed.

    Does not wait for the disk: readers must ignore a torn end.
    """
    with open(path, "ab", buffering=0, opener=_open_no_link) as file:
        write(file, data)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: any reader, even after a crash, sees all of the old bytes or all of the new ones."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        write_file(temporary, data)
        temporary.chmod(0o644)
        rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `folder` when the block ends without an error.

    Where the system cannot exchange two folders in one step, a crash between two renames leaves the old folder under
    the name `kept_folder(folder)`; `recover_folder` renames it back.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        sync_folder(temporary)
        _swap(temporary, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def kept_folder(folder: Path) -> Path:
    """The name of the old folder while a new one takes its place."""
    folder = Path(os.path.abspath(folder))  # "." has no name
    return folder.parent / f".{folder.name}.old"


def recover_folder(folder: Path) -> None:
    """Restore a folder that a crash left under its temporary name. Does nothing otherwise."""
    kept = kept_folder(folder)
    if kept.is_dir() and not folder.exists():
        rename(kept, folder)


def _swap(temporary: Path, folder: Path) -> None:
    """Give the new folder its final name. The old one, if any, is removed or ends up at `temporary`."""
    if not folder.exists():
        rename(temporary, folder)
    elif not exchange(temporary, folder):
        kept = kept_folder(folder)
        shutil.rmtree(kept, ignore_errors=True)
        rename(folder, kept)
        try:
            rename(temporary, folder)
        except BaseException:
            os.replace(kept, folder)
            raise
        shutil.rmtree(kept, ignore_errors=True)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step. Returns false where the system cannot do that."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(second))


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a folder for one process. The operating system releases the lock when the process ends, however it ends.

    Raises:
        BlockingIOError: another process holds the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab", opener=_open_no_link) as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{folder} is in use by another process. Wait for it to end, or choose another folder."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):  # a file system without locks
                raise
        yield


def _open_no_link(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "It is a link. Links are not followed; remove it", path) from None
        raise


@contextmanager
def _named(path: str | os.PathLike) -> Iterator[None]:
    """Add the file name to an error. The system calls on an open file do not know it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def folder_files(folder: str, suffixes: Sequence[str]) -> list[str]:
    """Return `walk_files` of a local folder, without pipes and devices: they may have no end."""
    found = walk_files(os.walk(folder), suffixes)
    return [file for file in found if os.path.isfile(file) or not os.path.exists(file)]


def walk_files(walk: Iterable[tuple[str, list[str], list[str]]], suffixes: Sequence[str]) -> list[str]:
    """Return the visible files of a folder and its subfolders, in the order of their names.

    Args:
        walk: of the folder, as `os.walk` returns it, from the top.
        suffixes: the endings of the files to return, in lower case.
    """
    found = []
    for folder, folders, files in walk:
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        visible = (file for file in sorted(files) if not file.startswith("."))
        found += [os.path.join(folder, file) for file in visible if os.path.splitext(file)[1].lower() in suffixes]
    return found
