"""Searches of this library next to those of the libraries that people use, on one thread.

Every peer is installed into an environment of its own, with pip, and runs in a process of its own. The contenders of a
row take turns. All write 20 tokens for each source. Where the weights can be copied, nothing is timed before the tokens
are the same.

    python benchmarks/peers.py --environments FOLDER [--only recurrent,transformer,speech] [--repeats 7] [--batch 8]
                               [--threads 1] [--quick] [--json]

- Recurrent decoder with additive attention, greedy and with beam 5, from a given memory: SpeechBrain, JoeyNMT.
- Transformer, greedy and with beam 4, with its encoder: Hugging Face, CTranslate2, KerasHub (greedy only).
- Speech: pocketsphinx with its own model, our preset `moonshine_tiny_english`, and the demonstration's recordings.

The ratios are their time divided by ours: above 1, this library is faster. On a busy machine trust CPU time. A peer
that cannot be installed or does not run is listed with the reason.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import venv
from pathlib import Path

from contest import OURS, Contest, Entry, hold_contest
from report import describe_machine, show_progress
from workers import set_threads
from workloads import (
    MAX_LENGTH,
    RECURRENT_PEERS,
    TRANSFORMER_PEERS,
    TransformerWorkload,
    Workload,
    make_source,
)

TORCH = "torch==2.13.0"
# CTranslate2 converts the model of Hugging Face, so that they share an environment.
PACKAGES = {
    "speechbrain": (TORCH, "speechbrain"),
    "joeynmt": (TORCH, "joeynmt", "importlib_metadata"),  # which JoeyNMT 2.3 needs but does not name
    "transformers": (TORCH, "transformers", "ctranslate2"),
    "pocketsphinx": ("pocketsphinx", "numpy"),
}
QUICK_SIZES = {"batch": 2, "source_length": 25, "vocabulary": 60}
COLUMNS = ("case", "contender", "weights", "CPU ms", "a CPU second", "ratio by CPU", "ratio by clock")


@dataclasses.dataclass(frozen=True)
class Peer:
    """A contender of `peer_contenders`.

    Args:
        environment: a key of `PACKAGES`, or `None` for what this library's own environment has.
        weights: where they come from, for the table.
    """

    contender: str
    environment: str | None
    weights: str


RECURRENT = {
    "SpeechBrain": Peer("SpeechBrain", "speechbrain", "random, same shapes"),
    "JoeyNMT": Peer("JoeyNMT", "joeynmt", "copied, same tokens"),
}
TRANSFORMERS = {
    "Hugging Face": Peer("HuggingFace", "transformers", "copied, same tokens"),
    "CTranslate2, float32": Peer("CTranslate2", "transformers", "copied, same tokens"),
    "CTranslate2, int8": Peer("CTranslate2Int8", "transformers", "copied, 8 bits"),
}
KERAS_HUB = {"KerasHub": Peer("KerasHub", None, "random, same shapes")}
SPEECH = {"pocketsphinx": Peer("Pocketsphinx", "pocketsphinx", "its own model")}
PEERS = {**RECURRENT, **TRANSFORMERS, **KERAS_HUB, **SPEECH}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, metavar="FOLDER", help="where to install the peers")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(MAKERS), help="which kinds of models")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each that count (default: 7)")
    parser.add_argument("--batch", type=int, default=8, help="sources in a run (default: 8)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each contender (default: 1)")
    parser.add_argument("--quick", action="store_true", help="small shapes, to see whether everything runs")
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    options = parser.parse_args()
    if unknown := set(options.only) - set(MAKERS):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(MAKERS)}")
    set_threads(options.threads)
    report = hold_contests(options)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print(make_table(report["contests"]))
        print("\n" + ", ".join(f"{name} {version}" for name, version in make_versions(report).items()))


def hold_contests(options: argparse.Namespace) -> dict:
    """Install the peers and let them take turns with this library, one case after the other."""
    report = {"machine": describe_machine(), "versions": {}, "not_installed": {}, "contests": {}}
    pythons: dict[str | None, Path | str] = {None: sys.executable}
    for kind in options.only:
        for case, (contest, peers) in MAKERS[kind](options).items():
            install_peers({peer.environment for peer in peers.values()}, options.environments, pythons, report)
            figures = hold_contest(case, add_peers(contest, peers, pythons), options.repeats, show_progress)
            for name, peer in peers.items():
                if peer.environment in report["not_installed"]:
                    figures[name] = {"error": f"not installed: {report['not_installed'][peer.environment]}"}
            report["contests"][case] = figures
            show_progress(make_table({case: figures}))
    return report


def install_peers(names: set[str | None], folder: Path, pythons: dict[str | None, Path | str], report: dict) -> None:
    """Add the interpreters of environments that were not tried before, or the reasons why there are none."""
    for name in names - set(pythons) - set(report["not_installed"]):
        show_progress(f"installing {' '.join(PACKAGES[name])}")
        try:
            pythons[name], report["versions"][name] = install(folder / name, PACKAGES[name])
        except InstallationError as error:
            report["not_installed"][name] = str(error)


def add_peers(contest: Contest, peers: dict[str, Peer], pythons: dict[str | None, Path | str]) -> Contest:
    """The contest with the peers that are installed, which get the same arguments as this library."""
    entries = dict(contest.entries)
    for name, peer in peers.items():
        if peer.environment in pythons:
            contender, python = f"peer_contenders.{peer.contender}", pythons[peer.environment]
            entries[name] = Entry(contender, contest.entries[OURS].arguments, python=python, may_fail=True)
    return dataclasses.replace(contest, entries=entries)


class InstallationError(RuntimeError):
    """A peer cannot be installed here."""


def install(folder: Path, packages: tuple[str, ...]) -> tuple[Path, dict[str, str]]:
    """Make an environment with some packages, unless it is there already; return its interpreter and all versions."""
    python, record = folder / "bin" / "python", folder / "installed.json"
    if not record.exists() or json.loads(record.read_text())["packages"] != list(packages):
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True)
        if done.returncode:
            raise InstallationError(next(reversed(done.stderr.strip().splitlines()), "pip failed"))
        listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True)
        versions = {each["name"].lower(): each["version"] for each in json.loads(listed.stdout)}
        record.write_text(json.dumps({"packages": packages, "versions": versions}))
    return python, json.loads(record.read_text())["versions"]


def make_recurrent(options: argparse.Namespace) -> dict[str, tuple[Contest, dict[str, Peer]]]:
    cases = {}
    for name, workload in RECURRENT_PEERS.items():
        workload = resize(workload, options)
        for beam_size in (1, 5):
            contest = make_contest("our_contenders.OurInputFeeding", workload, beam_size)
            cases[f"recurrent, {name}'s sizes, {describe(beam_size)}"] = contest, RECURRENT
    return cases


def make_transformers(options: argparse.Namespace) -> dict[str, tuple[Contest, dict[str, Peer]]]:
    cases = {}
    for name, workload in TRANSFORMER_PEERS.items():
        workload = resize(workload, options)
        for beam_size in (1, 4):
            contest = make_contest("our_contenders.OurTransformer", workload, beam_size)
            peers = {**TRANSFORMERS, **(KERAS_HUB if beam_size == 1 else {})}
            cases[f"Transformer, {name}'s sizes, {describe(beam_size)}"] = contest, peers
    return cases


def make_speech(options: argparse.Namespace) -> dict[str, tuple[Contest, dict[str, Peer]]]:
    from moonshine import SAMPLE_RATE

    from attention_apps.cli.demo_content import sample_recordings
    from attention_apps.preprocessing import read_audio

    waveforms = [read_audio(path) for path in sample_recordings()]
    seconds = sum(map(len, waveforms)) / SAMPLE_RATE
    ours = Entry("our_contenders.OurRecognition", (waveforms, SAMPLE_RATE))
    return {"speech, seconds of sound": (Contest({OURS: ours}, seconds, {}), SPEECH)}


MAKERS = {"recurrent": make_recurrent, "transformer": make_transformers, "speech": make_speech}


def resize(workload: Workload | TransformerWorkload, options: argparse.Namespace) -> Workload | TransformerWorkload:
    return dataclasses.replace(workload, **(QUICK_SIZES if options.quick else {"batch": options.batch}))


def make_contest(contender: str, workload: Workload | TransformerWorkload, beam_size: int) -> Contest:
    """Our part of a contest; its peers get the same arguments."""
    entry = Entry(contender, (workload, {"source": make_source(workload)}, beam_size))
    return Contest({OURS: entry}, workload.batch * MAX_LENGTH, dataclasses.asdict(workload))


def describe(beam_size: int) -> str:
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def make_table(contests: dict[str, dict[str, dict]]) -> str:
    """The figures of all contests as a table in Markdown."""
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    for case, contenders in contests.items():
        ours = contenders[OURS]
        for name, figures in sorted(contenders.items(), key=lambda item: item[0] != OURS):
            weights = PEERS[name].weights if name in PEERS else ""
            rows.append([case if name == OURS else "", name, weights, *make_cells(figures, ours)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def make_cells(figures: dict, ours: dict) -> list[str]:
    if "error" in figures:
        return [figures["error"].replace("|", "/"), "", "", ""]
    cpu, clock = figures["cpu_seconds_per_run"], figures["median_seconds"]
    return [
        f"{1e3 * cpu:,.0f}",
        f"{figures['per_second'] * clock / cpu:,.0f}",  # tokens, or seconds of sound
        f"{cpu / ours['cpu_seconds_per_run']:.2f}",
        f"{clock / ours['median_seconds']:.2f}",
    ]


def make_versions(report: dict) -> dict[str, str]:
    """What was compared on which machine."""
    names = {"torch", "torchaudio", *(package for packages in PACKAGES.values() for package in packages[1:])} - {
        "numpy"
    }
    peers = {name: version for each in report["versions"].values() for name, version in each.items() if name in names}
    machine = {name: str(value) for name, value in report["machine"].items()}
    return {**machine, **dict(sorted(peers.items()))}


if __name__ == "__main__":
    main()
