"""Links of the pages: those to files outside of docs lead to the repository, and those to notebooks to their pages."""

from __future__ import annotations

import os.path
import re
from pathlib import Path, PurePosixPath

#: The name of the branch that links to the repository show.
BRANCH = "main"


def page_of_notebook(path: str) -> str:
    """The path of the page that shows a notebook.

    >>> page_of_notebook("notebooks/first.ipynb")
    'notebooks/first.md'
    """
    return str(PurePosixPath(path).with_suffix(".md"))


def rewrite(text: str, page: str, repository: str, root: Path) -> str:
    """The text of a page with its links rewritten for the site.

    Args:
        text: The text, in Markdown.
        page: The path of the page below docs.
        repository: The address of the repository.
        root: The folder of the repository.
    """

    def change(link: re.Match[str]) -> str:
        target, hash_sign, anchor = link[2].partition("#")
        if not target or "://" in target:
            return link[0]
        path = os.path.normpath(os.path.join("docs", os.path.dirname(page), target))
        if path.startswith("docs/"):
            is_own_notebook = page_of_notebook(path) == f"docs/{page}"  # its page links to the notebook itself
            if target.endswith(".ipynb") and not is_own_notebook:
                return f"{link[1]}{page_of_notebook(target)}{hash_sign}{anchor})"
            return link[0]
        if not (root / path).exists():
            return link[0]  # MkDocs reports it
        kind = "tree" if (root / path).is_dir() else "blob"
        return f"{link[1]}{repository}/{kind}/{BRANCH}/{path}{hash_sign}{anchor})"

    return re.sub(r"(\]\()([^)\s]+)\)", change, text)


def link_reference_pages(text: str) -> str:
    """The text of a page with its links to the reference changed from Markdown files to pages of the site.

    The site has the Markdown of the written pages, but not that of the reference.

    >>> link_reference_pages("[`Linear`](../reference/nn.md#algebranets.nn.Linear), [Layers](layers.md)")
    '[`Linear`](../reference/nn/#algebranets.nn.Linear), [Layers](layers.md)'
    """
    return re.sub(r"(\]\((?:\.\./)*reference/[\w.]+)\.md(#[^)\s]*)?\)", r"\1/\2)", text)
