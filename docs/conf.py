"""The site of these pages: ``make docs``. The navigation is in index.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

project = "zefuse"
author = "the zefuse contributors"
project_copyright = author
release = re.search(r'__version__ = "(.+?)"', (ROOT / "python/zefuse/__init__.py").read_text())[1]  # type: ignore[index]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["README.md"]
nitpicky = False  # types of torch have no page here; pages and their headings are checked either way
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.strikethrough"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

smartquotes = False  # of --option it makes a dash

html_theme = "furo"
html_title = f"zefuse {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

# Pages of the site that lie elsewhere in the repository.
ELSEWHERE = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "examples": "examples/README.md"}


def _source(app: Any, name: str, source: list[str]) -> None:
    if name in ELSEWHERE:
        file = ROOT / ELSEWHERE[name]
        source[0] = _moved(file.read_text(), file.parent)
    elif name == "commands":
        import command_reference

        source[0] += command_reference.markdown()
    source[0] = _within(source[0])


def _moved(text: str, folder: Path) -> str:
    """A page's links as they are from here."""

    def link(match: re.Match[str]) -> str:
        place = (folder / match[1]).resolve()
        return (
            f"]({place.relative_to(HERE)}{match[2]})"
            if place.is_relative_to(HERE)
            else f"](../{place.relative_to(ROOT)}{match[2]})"
        )

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)((?:#[^)]*)?)\)", link, text)


def _within(text: str) -> str:
    """Links to pages that lie elsewhere lead to their place in the site; other files are there to be downloaded."""
    for page, file in {**ELSEWHERE, "index": "README.md"}.items():
        text = text.replace(f"](../{file}", f"]({page}.md")
    return re.sub(r"\]\((\.\./[^)#]+\.md)\)", r"](path:\1)", text)


def setup(app: Any) -> None:
    app.connect("source-read", _source)
