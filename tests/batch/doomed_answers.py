"""Answers that wait for the death of a node, for tests that kill it."""

import os
import time
from pathlib import Path

from attention_apps.cli.batch import Answer

_SECONDS = 240


class DoomedAnswer(Answer):
    """An `Answer` that never ends the second part that a doomed node begins; the other nodes wait for this moment.

    Attributes:
        doomed: the id of the node.
        log: a folder for a file `<node>-<first input>` of each part that was begun.
    """

    doomed: str
    log: str

    def __call__(self, items):
        import ray

        items = list(items)
        node = ray.get_runtime_context().get_node_id()
        Path(self.log, f"{node}-{os.path.basename(items[0])}").touch()
        is_doomed = node == self.doomed
        end = time.monotonic() + _SECONDS
        while (len(self.begun(self.doomed)) >= 2) == is_doomed and time.monotonic() < end:
            time.sleep(0.05)
        yield from super().__call__(items)

    def begun(self, node):
        """The first inputs of the parts that a node has begun."""
        return {path.name.removeprefix(f"{node}-") for path in Path(self.log).glob(f"{node}-*")}
