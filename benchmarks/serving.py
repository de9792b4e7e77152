"""Measures an exported model: first answer after loading, steady speed, memory, and the server under load.

Exports a preset and loads the export in a new process, as a server does, for its first answer. Then loads it in this
process and times it next to the live application, one input at a time, in turns. Then calls it with batches of mixed
sizes and watches the memory of the process. At the end it starts `attention-apps serve` and sends requests from 1, 8
and 64 clients; every request must get an answer or a 503. With `--minutes` a mixed load follows (good requests of one
row and of many, bad requests, aborted uploads, idle connections), during which the memory of the server is watched and
printed every minute. There, too, a good request must get an answer or a 503, and a bad one also a 400.

    python benchmarks/serving.py PRESET INPUT... [--calls 2000] [--repeats 50] [--threads 1] [--seconds 10]
        [--minutes 60] [--rate 5] [--json]

Inputs are files: photos for a captioner, recordings (WAV) for a recognizer, texts for a summarizer.
"""

import argparse
import base64
import contextlib
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_FIRST_ANSWER = """
import json, sys
from timing import time_once
from attention_apps.serving import LoadedModel
export, name, path = sys.argv[1:]
with open(path, "rb") as file:
    inputs = {name: [file.read()]}
loaded = []
loading = time_once(lambda: loaded.append(LoadedModel(export)))
print(json.dumps([*loading, *time_once(lambda: loaded[0].predict(inputs))]))
"""
INPUTS = {
    "image_captioning": ("image_bytes", "caption"),
    "speech_recognition": ("audio_bytes", "transcribe"),
    "text_summarization": ("text", "summarize"),
    "sentence_compression": ("text", "compress"),
    "machine_translation": ("text", "translate"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", help="name of a preset, or the folder of a trained application")
    parser.add_argument("inputs", nargs="+", type=Path, help="files")
    parser.add_argument("--calls", type=int, default=2000, help="calls of mixed sizes, while memory is watched")
    parser.add_argument("--repeats", type=int, default=50, help="timed calls of each, one input at a time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10, help="load on the server with each number of clients")
    parser.add_argument("--minutes", type=float, default=0, help="mixed load on the server, while memory is watched")
    parser.add_argument("--rate", type=float, default=0, help="requests a second of the mixed load; 0: no limit")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:10.4g}")


def measure(options: argparse.Namespace) -> dict[str, float]:
    from timing import interleave

    from attention_apps.applications.tasks import load
    from attention_apps.serving import LoadedModel

    application = load(options.preset)
    name, verb = INPUTS[application.task]
    items = [path.read_bytes() for path in options.inputs]
    with tempfile.TemporaryDirectory() as folder:
        export = application.export(Path(folder) / "model")
        size = sum(path.stat().st_size for path in export.rglob("*") if path.is_file())
        loading, loading_cpu, first, first_cpu = time_first_answer(export, name, options.inputs[0])
        served = measure_server(export.parent, name, items, options) if options.seconds else {}
        model = LoadedModel(export)
    check_parity(application, model, items, name, verb)
    live = getattr(application, verb)
    turn = iter(range(10**9))
    timings = interleave(
        {
            "live": lambda: live(items[next(turn) // 2 % len(items)]),
            "export": lambda: model.predict({name: [items[next(turn) // 2 % len(items)]]}),
        },
        options.repeats,
        warmup=3,
    )
    return {
        "export megabytes": size / 1e6,
        "load seconds": loading,
        "load CPU seconds": loading_cpu,
        "first answer seconds": first,
        "first answer CPU seconds": first_cpu,
        "live milliseconds": 1e3 * timings["live"].median,
        "export milliseconds": 1e3 * timings["export"].median,
        "export / live": timings["export"].median / timings["live"].median,
        **grow(lambda batch: model.predict({name: batch}), items, options.calls),
        **served,
    }


def time_first_answer(export: Path, name: str, path: Path) -> list[float]:
    """Returns seconds and CPU seconds of loading an export in a new process, and of its first answer there."""
    command = [sys.executable, "-c", _FIRST_ANSWER, str(export), name, str(path.resolve())]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def check_parity(application, model, items, name, verb) -> None:
    """Exits if the export and the application return different texts."""
    ours = [result.text for result in getattr(application, verb)(items)]
    theirs = [texts[0].decode() for texts in model.predict({name: items})["text"]]
    if ours != theirs:
        sys.exit(f"The export differs from the application: {theirs} in place of {ours}")


def grow(call, items, calls: int) -> dict[str, float]:
    """Returns the growth of the process in megabytes after the first tenth of the calls, and the slowdown.

    TensorFlow keeps what it prepares for a new shape, so the process grows while shapes are new. The second half of the
    calls has fewer of them, and at the end the first fifth of the batches is sent again, which has none.
    """
    chance, tenth = random.Random(0), max(calls // 10, 1)
    batches = [[chance.choice(items) for _ in range(chance.choice((1, 2, 3, 5, 8)))] for _ in range(calls)]
    seconds, memory = [], []
    for batch in [*batches, *batches[: 2 * tenth]]:
        start = time.perf_counter()
        call(batch)
        seconds.append((time.perf_counter() - start) / len(batch))
        memory.append(resident_megabytes())
    half = statistics.mean(memory[calls // 2 : calls // 2 + tenth])
    last = statistics.mean(memory[calls - tenth : calls])
    return {
        "calls": calls,
        "growth megabytes": last - statistics.mean(memory[tenth : 2 * tenth]),
        "growth, second half": last - half,
        "growth, same batches again": memory[-1] - memory[calls - 1],
        "last tenth / first tenth": statistics.median(seconds[calls - tenth : calls])
        / statistics.median(seconds[:tenth]),
    }


def resident_megabytes(process: int | str = "self") -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[tuple[int, int]]:
    """Yields process and port of a server for the model in a folder."""
    command = [sys.executable, "-m", "attention_apps", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would block the server
        yield process.pid, int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
    finally:
        process.terminate()
        process.wait()


def measure_server(folder: Path, name: str, items: list[bytes], options: argparse.Namespace) -> dict[str, float]:
    bodies = [json.dumps({"instances": [{name: {"b64": base64.b64encode(item).decode()}}]}).encode() for item in items]
    path, figures = f"/v1/models/{folder.name}:predict", {}
    with running_server(folder) as (process, port):
        ask_repeatedly(port, path, bodies, time.monotonic() + 1)  # warm-up
        for clients in (1, 8, 64):
            figures |= load(port, path, bodies, clients, options.seconds)
        if options.minutes:
            bodies += [mixed_batch(name, items, rows, random.Random(rows)) for rows in (2, 3, 5, 8)]
            figures |= watch_mixed_load(process, port, path, bodies, options.minutes, options.rate)
    return figures


def mixed_batch(name: str, items: list[bytes], rows: int, chance: random.Random) -> bytes:
    instances = [{name: {"b64": base64.b64encode(chance.choice(items)).decode()}} for _ in range(rows)]
    return json.dumps({"signature_name": "text", "instances": instances}).encode()


def load(port: int, path: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, float]:
    """Returns requests per second and latency of clients that ask again as soon as they are answered."""
    start = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(ask_repeatedly, port, path, bodies, start + seconds) for _ in range(clients)]
        answers = [answer for future in futures for answer in future.result()]
    elapsed = time.monotonic() - start
    statuses = Counter(status for status, _ in answers)
    latencies = sorted(latency for status, latency in answers if status == 200)
    check_statuses(statuses, {200, 503})
    return {
        f"answers/s, {clients} clients": statuses[200] / elapsed,
        f"answered %, {clients} clients": 100 * statuses[200] / len(answers),
        f"503 %, {clients} clients": 100 * statuses[503] / len(answers),
        f"median ms, {clients} clients": 1e3 * statistics.median(latencies),
        f"95 % ms, {clients} clients": 1e3 * latencies[int(0.95 * len(latencies))],
    }


def check_statuses(statuses: Counter[int], expected: set[int]) -> None:
    if set(statuses) - expected:
        sys.exit(f"Requests got other answers than {sorted(expected)}: {dict(statuses)}")


def ask_repeatedly(
    port: int, path: str, bodies: list[bytes], end: float, interval: float = 0
) -> list[tuple[int, float]]:
    """Sends requests over one connection until a point in time; returns status and seconds of each."""
    connection, answers, chance = http.client.HTTPConnection("127.0.0.1", port, timeout=120), [], random.Random()
    while time.monotonic() < end or not answers:
        start = time.monotonic()
        connection.request("POST", path, chance.choice(bodies))
        response = connection.getresponse()
        response.read()
        answers.append((response.status, time.monotonic() - start))
        time.sleep(max(interval - answers[-1][1], 0))
    connection.close()
    return answers


def watch_mixed_load(
    process: int, port: int, path: str, bodies: list[bytes], minutes: float, rate: float = 0
) -> dict[str, float]:
    """Returns how the server's memory changes from the second twelfth of a mixed load to its last.

    Of an hour these are the minutes 5 to 10 and 55 to 60.
    """
    end, memory = time.monotonic() + 60 * minutes, []
    damaged = [body[: len(body) // 2] for body in bodies] + [b"{}", b'{"instances": [{"b64": "AAAA"}]}']
    interval = 6 / rate if rate else 0.0  # of each of the six clients
    with ThreadPoolExecutor(6) as pool:
        good = [pool.submit(ask_repeatedly, port, path, bodies, end, interval) for _ in range(3)]
        bad = pool.submit(ask_repeatedly, port, path, damaged, end, interval)
        pool.submit(repeat_until, end, lambda: connect_and_leave(port, path, b" " * (8 << 20), 0.0), interval)
        pool.submit(repeat_until, end, lambda: connect_and_leave(port, path, b"", 1.0), interval)
        while time.monotonic() < end:
            memory.append(resident_megabytes(process))
            if len(memory) % 60 == 1:
                print(f"minute {len(memory) // 60:3}: {memory[-1]:8.1f} MB", file=sys.stderr, flush=True)
            time.sleep(min(1.0, 0.6 * minutes))
        statuses = Counter(status for future in good for status, _ in future.result())
        refused = Counter(status for status, _ in bad.result())
    print(f"statuses: good {dict(statuses)}, bad {dict(refused)}", file=sys.stderr, flush=True)
    check_statuses(statuses, {200, 503})
    check_statuses(refused, {200, 400, 503})  # 200: an item of which the outputs say what is wrong with it
    part = max(len(memory) // 12, 1)
    first, last = statistics.mean(memory[part : 2 * part]), statistics.mean(memory[-part:])
    return {
        "mixed load minutes": minutes,
        "mixed load requests": statuses.total() + refused.total(),
        "mixed load answers": statuses[200],
        "mixed load 503s": statuses[503],
        "server megabytes": first,
        "server megabytes at the end": last,
        "server growth percent": 100 * (last - first) / first,
    }


def repeat_until(end: float, action: Callable[[], None], interval: float = 0) -> None:
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            action()
        time.sleep(interval)


def connect_and_leave(port: int, path: str, data: bytes, seconds: float) -> None:
    """Announces a body of 31 MiB, sends part of it, waits, and closes the connection."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {31 << 20}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head + data)
        time.sleep(seconds)


if __name__ == "__main__":
    main()
