"""What goes with an exported model for people to read."""

from collections.abc import Mapping
from typing import Any

from attention_apps._version import __version__
from attention_apps.serving.signature import Signature


def make_card(
    name: str, title: str, signatures: Mapping[str, Signature], graphs: Mapping[str, Any], notes: Mapping[str, str]
) -> str:
    """The text of the README.md: inputs, outputs, how to call it."""
    sections = [f"# {name}\n", f"{title} A TensorFlow SavedModel {_needs(signatures)}\n"]
    for signature_name, signature in signatures.items():
        graph = graphs[signature_name]
        sections.append(f"## Signature `{signature_name}`\n")
        sections.append(_table("input", graph.structured_input_signature[1], signature.input_notes))
        sections.append(_table("output", graph.structured_outputs, signature.output_notes))
    sections.append(
        "The batch axis comes first, and a batch may be of any size. A bad item answers with an empty text and its "
        "`status`; the others of its batch are unharmed. Where there is no hypothesis, `score` is the lowest float32.\n"
    )
    sections.append("".join(f"- {topic}: {note}\n" for topic, note in notes.items()) or "")
    sections.append(_how_to_call(name))
    sections.append(f"Written by attention_apps {__version__}.\n")
    return "\n".join(section for section in sections if section)


def _needs(signatures):
    packages = sorted({package for signature in signatures.values() for package in signature.packages})
    if not packages:
        return "of core TensorFlow ops: it needs no other package."
    return f"with ops of other packages: before it is loaded, `import {', '.join(packages)}`."


def _table(kind, specs, notes):
    lines = [f"| {kind} | type | shape | |", "|---|---|---|---|"]
    for name, spec in sorted(specs.items()):
        shape = ", ".join(["batch", *("*" if size is None else str(size) for size in spec.shape[1:])])
        lines.append(f"| `{name}` | {spec.dtype.name} | ({shape}) | {notes[name]} |")
    return "\n".join(lines) + "\n"


def _how_to_call(name):
    return f"""## Serve it

```
docker run -p 8501:8501 -v "$PWD/{name}:/models/{name}" -e MODEL_NAME={name} tensorflow/serving
attention-apps serve {name}        # the same REST format, for trying things out
```
"""
