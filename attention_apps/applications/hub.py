"""Presets on the Hugging Face Hub: `hf://user/model` and `hf://user/model@revision`."""

import os
import re
from pathlib import Path
from typing import Any

from attention_apps._version import __version__

PREFIX = "hf://"
# Nothing else of a repository is downloaded. `read_preset` then checks these files as it checks those of any folder.
_FILES = ["config.json", "*.txt", "weights.safetensors", "README.md", "SHA256SUMS"]
_HANDLE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


def download_preset(handle: str) -> Path:
    """Download a preset into the cache of `huggingface_hub` and return its folder. Offline, the cache answers.

    Args:
        handle: `hf://user/model`, optionally with `@` and a branch, tag or commit.

    Raises:
        FileNotFoundError: there is no such repository or revision, or it is not in the cache and the hub is out of
            reach.
    """
    match = _HANDLE.fullmatch(handle)
    if match is None:
        raise ValueError(
            f"A preset of the hub must have the form hf://user/model or hf://user/model@revision. "
            f"Received: {handle[:200]!r}"
        )
    hub = _import_hub()
    try:
        folder = hub.snapshot_download(
            match[1],
            revision=match[2],
            allow_patterns=_FILES,
            library_name="attention_apps",
            library_version=__version__,
        )
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError) as error:
        raise FileNotFoundError(f"{handle} cannot be loaded from the hub: {str(error).splitlines()[0]}") from error
    return Path(folder)


def upload_preset(folder: str | os.PathLike, repository: str, private: bool | None, revision: str | None) -> str:
    """Upload the folder of a preset, creating the repository if there is none.

    Returns:
        The address of the commit.
    """
    hub = _import_hub()
    api = hub.HfApi(library_name="attention_apps", library_version=__version__)
    api.create_repo(repository, private=private, exist_ok=True)
    if revision is not None:
        api.create_branch(repository, branch=revision, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repository,
        folder_path=folder,
        revision=revision,
        commit_message=f"Preset of attention_apps {__version__}",
        delete_patterns=["*.txt"],  # files of an earlier preset that this one does not have
    )
    return str(commit.commit_url)


def _import_hub() -> Any:
    try:
        import huggingface_hub.errors
    except ImportError:
        raise ValueError("Presets of the hub need huggingface_hub: `pip install 'attention_apps[hub]'`") from None
    return huggingface_hub
