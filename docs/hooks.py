"""Hooks of the site's build.

Result files join the site, pages run in folders of their own, formulas become MathML, search needs no network.
"""

import os
import re
import sys
import tempfile
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_RESULTS = _ROOT / "reproduction" / "results"
_FOLDER = tempfile.TemporaryDirectory(prefix="contiformer-docs-")
# printed tables keep the names of their columns in one line
os.environ["POLARS_TABLE_WIDTH"] = "160"
# commands on pages are those of this environment
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["REPOSITORY"] = str(_ROOT)
_SHIM = "https://unpkg.com/iframe-worker/shim"
_PLACE = re.compile(rf"{re.escape(_FOLDER.name)}/\w+/")
_OBJECT = re.compile(r'(?<=class="doc doc-object-name )([\w-]+">)([\w.]+)')
_INLINE = re.compile(r"<code>[^<\n]*--[^<\n]*</code>")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: object, **_: object) -> None:
    """Add the reproduction's report, tables and figures."""
    for path in sorted(_RESULTS.rglob("*")):
        place = path.relative_to(_RESULTS)
        if path.suffix in (".csv", ".png", ".md") and place.parts[0] not in ("cells", "quick"):
            files.append(File.generated(config, f"results/{place.as_posix()}", abs_src_path=str(path)))  # type: ignore[arg-type]


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links from places in the repository to places in the site; the page's code runs in an empty folder."""
    os.chdir(tempfile.mkdtemp(dir=_FOLDER.name))
    markdown = re.sub(r"\]\(\.\./reproduction/results/?\)", "](results/report.md)", markdown)
    markdown = markdown.replace("](../../docs/", "](../").replace("<details>", '<details markdown="1">')
    return markdown.replace("](../reproduction/results/", "](results/")


def _mathml(match: re.Match[str]) -> str:
    return convert(unescape(match[3]).strip(), display="inline" if match[2] == "(" else "block")


def on_page_content(html: str, **_: object) -> str:
    """Replace LaTeX by MathML, keep options of commands in one line, and leave out the folder that the page ran in."""
    os.chdir(_ROOT)
    # commands print the folder that a page runs in
    html = _PLACE.sub("", html)
    # on a phone names break behind a dot
    html = _OBJECT.sub(lambda name: name[1] + name[2].replace(".", ".<wbr>"), html)
    html = _INLINE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
    return _FORMULA.sub(_mathml, html)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Take the stand-in for search workers, which the theme would load from the network, from the site itself."""
    return output.replace(_SHIM, "../" * page.url.count("/") + "assets/worker.js")


def on_post_template(output: str, **_: object) -> str:
    """The same for the page of missing addresses."""
    return output.replace(_SHIM, "/assets/worker.js")
