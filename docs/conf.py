"""Sphinx: the pages are Markdown, the reference is read out of the docstrings.

Docstrings here are plain text, not reStructuredText: `names` in backticks, tables of parameters, drawings.
`to_rst` turns those three into fields, literals and literal blocks, and takes everything else as it is.
"""

import builtins
import json
import re
from pathlib import Path
from typing import Any

from docutils.nodes import Text
from sphinx.addnodes import pending_xref

import planstep

project = "Planstep"
author = "the Planstep authors"
copyright = author
version = release = planstep.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["examples/*"]
ROOT_PAGES = ("RELIABILITY.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
"""Pages of the repository's top folder; each has a stub in docs/, of its name in small letters."""
myst_heading_anchors = 3
smartquotes = False
html_theme = "furo"
html_title = "Planstep"
html_static_path = ["_static"]
html_css_files = ["planstep.css"]
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
html_copy_source = False
nitpicky = True
# Only this library's own names must resolve: without a network the others have nowhere to lead.
nitpick_ignore_regex = [(r"py:.*", r"(?!planstep\.).*|planstep\..*\.(T|Unchanged|Opening)")]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False
python_use_unqualified_type_names = True

for _name in planstep.__all__:  # shown, and referred to, where users find them
    _item = getattr(planstep, _name)
    if getattr(_item, "__module__", "").startswith("planstep."):
        _item.__module__ = "planstep"

_NEXT = re.compile(r" ?Next: [\w/]+\.py\.$")  # for readers of the code
_PARAMETER = re.compile(r"^(\*{0,2}[a-z_]\w*) {2,}(\S.*)$")


def _literal(text: str) -> str:
    """A line of plain text: what is in backticks is code, and a name of the face is a link."""

    def code(found: "re.Match[str]") -> str:
        inner = found.group(1)
        return f":py:obj:`planstep.{inner}`" if inner in planstep.__all__ else f"``{inner}``"

    parts = re.split(r"(`[^`]+`)", text)
    for i, part in enumerate(parts):
        if part.startswith("`") and part.endswith("`") and len(part) > 2:
            parts[i] = re.sub(r"`([^`]+)`", code, part)
            if i + 1 < len(parts) and parts[i + 1][:1].isalnum():
                parts[i] += "\\ "
        else:
            parts[i] = re.sub(r"([\\*|]|_\b)", r"\\\1", part)
    return "".join(parts)


def to_rst(lines: list[str]) -> list[str]:
    made: list[str] = []
    state = "text"
    for line in lines:
        line = _NEXT.sub("", line)
        found = _PARAMETER.match(line)
        if not line.strip():
            made.append("")
            state = "text" if state == "drawing" else state
        elif found is not None:
            if state != "table":
                made.append("")
            made.append(f":param {found.group(1)}: {_literal(found.group(2))}")
            state = "table"
        elif state == "table" and line.startswith("  "):
            made.append(f"    {_literal(line.strip())}")
        elif line.startswith("    "):
            if state != "drawing":
                made += ["::", ""]
            made.append(f"    {line}")
            state = "drawing"
        else:
            if state == "table" and made[-1]:
                made.append("")
            made.append(_literal(line))
            state = "text"
    return made


def plain_docstring(
    app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]
) -> None:
    if item is not None and "Alias for field number" in "".join(lines):
        lines[:] = []
    lines[:] = to_rst(lines)


def signature(
    app: Any, what: str, name: str, item: Any, options: Any, *shown: str | None
) -> tuple[str | None, str | None] | None:
    """Classes that the engine makes show no constructor. `shown`: the arguments, and what is returned."""
    given, result = shown
    if what in ("class", "exception") and not issubclass(item, tuple):
        return (None if given is None else ""), None
    if ".Async" in name and result is not None:
        result = re.sub(r"^Iterator\b", "AsyncIterator", result)
    return given, result


def root_page(app: Any, docname: str, source: list[str]) -> None:
    """Puts a page of the top folder in place of its stub; its links lead to pages here."""
    for name in ROOT_PAGES:
        if docname == name.removesuffix(".md").lower():
            text = (Path(app.srcdir).parent / name).read_text(encoding="utf-8")
            for other in ROOT_PAGES:
                text = text.replace(f"]({other}", f"]({other.lower()}")
            source[0] = text.replace("](docs/", "](")


def notebook_page(app: Any, docname: str, source: list[str]) -> None:
    """Puts a notebook with its outputs in place of its stub, `guide/notebooks/NAME`."""
    if docname.startswith("guide/notebooks/"):
        file = f"bench/notebooks/{Path(docname).name}.ipynb"
        notebook = json.loads((Path(app.srcdir).parent / file).read_text(encoding="utf-8"))
        source[0] = "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell))


def _cell(cell: dict[str, Any]) -> list[str]:
    """Returns a notebook's cell as Markdown: its text, or its code and what that gave."""
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [text]
    parts = [f"```python\n{text}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            alt = output["metadata"]["image/png"]["alt"].translate(str.maketrans("[]", "()"))
            parts.append(f"![{alt}](data:image/png;base64,{''.join(data['image/png']).strip()})")
        elif "text/html" in data:
            parts.append(f"```{{raw}} html\n{''.join(data['text/html'])}\n```")
        else:
            shown = "".join(output.get("text") or data["text/plain"]).rstrip()
            parts.append(f"```text\n{shown}\n```")
    return parts


def plain_builtins(app: Any, doctree: Any) -> None:
    """`bytes` in a signature is Python's, not the field of that name of some class here."""
    for node in list(doctree.findall(pending_xref)):
        if node.get("refdomain") == "py" and hasattr(builtins, str(node.get("reftarget"))):
            node.replace_self(Text(node["reftarget"]))


def setup(app: Any) -> None:
    app.connect("source-read", root_page)
    app.connect("source-read", notebook_page)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("autodoc-process-signature", signature)
    app.connect("doctree-read", plain_builtins)
