"""Makes the API reference from docstrings: a page for each package, with all of its public names.

mkdocs calls the hooks `on_files` and `on_page_markdown`; Griffe, which reads the sources for mkdocstrings without
importing them, calls `Sections`.
"""

import ast
import os
import re
import textwrap
from pathlib import Path

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PACKAGES = (
    *("", "applications", "layers", "models", "decoding"),
    *("data", "preprocessing", "training", "metrics", "serving"),
)
_LISTS = ("Args", "Call arguments", "Attributes", "Raises")
_TEXTS = ("Returns", "Reference")
_SECTION = re.compile(rf"^({'|'.join((*_LISTS, *_TEXTS, 'Example'))}):$")


def on_files(files, config):
    """Adds the README as the first page, and the pages of the reference."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    for package in PACKAGES:
        files.append(File.generated(config, page_of(package), content=page(package)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files outside of the documentation become plain text."""
    folder = (Path(config.docs_dir) / page.file.src_uri).parent

    def keep_or_drop(match):
        text, target = match.groups()
        is_kept = re.match(r"[a-z]+:|#", target) or files.get_file_from_path(_inside(folder / target, config))
        return match[0] if is_kept else text

    pieces = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    pieces[::2] = [re.sub(r"(?<!!)\[([^]]*)\]\(([^)]+)\)", keep_or_drop, piece) for piece in pieces[::2]]
    return "".join(pieces)


def _inside(path, config):
    """A path as one within the documentation's folder, whether there is such a file or not."""
    return os.path.relpath(str(path).split("#")[0], config.docs_dir)


def page_of(package):
    return f"reference/{package or 'attention_apps'}.md"


def public_names(package=""):
    """The public names of a package and where each is defined, `{"AdditiveAttention": "attention_apps.layers...."}`.

    Read from the source: importing would take as long as TensorFlow does.
    """
    full = f"attention_apps.{package}" if package else "attention_apps"
    source = ROOT / full.replace(".", "/") / "__init__.py"
    stub = source.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else source).read_text(encoding="utf-8"))
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:  # without a module, it names subpackages
            module = f"{full}.{node.module}" if node.level else node.module
            names |= {alias.name: f"{module}.{alias.name}" for alias in node.names}
    (public,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    return {name: _home(names[name]) for name in ast.literal_eval(public) if name in names}


def _home(path):
    """Where a name is defined: the top package takes some from the stub of `attention_apps.applications`."""
    package, name = path.rsplit(".", 1)
    return public_names("applications")[name] if package == "attention_apps.applications" else path


def page(package):
    """The text of a package's page; the top one's names that have a page of their own package are links to it."""
    full = f"attention_apps.{package}" if package else "attention_apps"
    tree = ast.parse((ROOT / full.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    elsewhere = {} if package else {home for other in PACKAGES[1:] for home in public_names(other).values()}
    parts = [f"# {full}", ast.get_docstring(tree)]
    for name, home in public_names(package).items():
        parts.append(f"## {name}\n\n[{name}][{home}]" if home in elsewhere else f"::: {home}")
    return "\n\n".join(parts) + "\n"


class Sections(griffe.Extension):
    """Makes Markdown of the sections of our docstrings."""

    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(docstring):
    """Args and the like as lists, examples as code, the other sections as paragraphs with a title."""
    parts, sections = [], [(None, [])]
    for line in docstring.splitlines():
        match = _SECTION.match(line)
        if match:
            sections.append((match[1], []))
        else:
            sections[-1][1].append(line)
    for title, lines in sections:
        text = textwrap.dedent("\n".join(lines)).strip("\n")
        if title == "Example":
            text = f"```python\n{text}\n```"
        elif title in _LISTS:
            text = "\n".join(_list_line(line) for line in text.splitlines())
        parts.append(f"**{title}**\n\n{text}" if title else text)
    return "\n\n".join(parts)


def _list_line(line):
    """`name: text` as an entry of a list; what is indented goes on with the entry before."""
    if line.startswith(" ") or not line:
        return line
    names, colon, text = line.partition(":")
    listed = ", ".join(f"`{name.strip('` ')}`" for name in names.split(","))
    return f"- {listed}{colon}{text}" if colon else line
