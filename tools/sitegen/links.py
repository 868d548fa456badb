"""A checker of the links in a built site: every page, file and anchor of the site must exist. It needs no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: The tags that load something into a page, and the attribute that says what.
_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


@dataclass
class Page(HTMLParser):
    """What a page links to, loads, and can be linked to by."""

    path: Path
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        text = self.path.read_text()
        if self.path.suffix == ".md":
            text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.S | re.M)
            self.links += re.findall(r"\]\(([^)\s]+)\)", text)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read one tag."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        loads_nothing = tag == "link" and values.get("rel") in ("canonical", "prev", "next", "edit")
        if _LOADED.get(tag) in values and not loads_nothing:
            self.loaded.append(values[_LOADED[tag]])


def broken(site: Path, address: str) -> Iterator[str]:
    """Yield a line for each link of a built site that leads nowhere, in its pages and in its Markdown files.

    An anchor in a link to a Markdown file must be in the page that is made from the file.

    Args:
        site: The folder of the site.
        address: The address of the site. Links that begin with it are checked like relative ones.
    """
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    texts = {path.resolve(): Page(path) for path in sorted(site.rglob("*.md"))}
    for page in (*pages.values(), *texts.values()):
        for link in dict.fromkeys([*page.links, *page.loaded]):
            inner = link.removeprefix(address) if link.startswith(address) else link
            parts = urlsplit(inner)
            if parts.scheme or parts.netloc:
                continue
            is_absolute = link.startswith(address) or parts.path.startswith("/") or page.path.name == "404.html"
            target = _target(page.path, site, unquote(parts.path), is_absolute)
            name = page.path.relative_to(site)
            if not target.is_file():
                yield f"{name}: {link} leads to no file"
            found = pages.get(_page_of(target))
            if found and parts.fragment and unquote(parts.fragment) not in found.anchors:
                yield f"{name}: {link} leads to no anchor"


def from_other_hosts(site: Path) -> Iterator[str]:
    """Yield a line for each script, style sheet, font or image that a page loads from another host."""
    for path in sorted(site.rglob("*.html")):
        for link in Page(path).loaded:
            if urlsplit(link).netloc:
                yield f"{path.relative_to(site)}: {link}"


def _page_of(target: Path) -> Path:
    """The page that is made from a Markdown file; every other file is its own page."""
    if target.suffix != ".md":
        return target
    return target.with_name("index.html") if target.stem == "index" else target.with_suffix("") / "index.html"


def _target(page: Path, site: Path, path: str, is_absolute: bool) -> Path:
    """The file that a link opens."""
    if not path:
        return (site / "index.html" if is_absolute else page).resolve()
    if is_absolute:
        inner = path.lstrip("/")
        target = site / (inner.partition("/")[2] if path.startswith("/") else inner)
    else:
        target = page.parent / path
    return (target / "index.html" if target.is_dir() or path.endswith("/") else target).resolve()
