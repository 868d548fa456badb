"""llms.txt: the list of the site's pages for language models, in the form of llmstxt.org."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

#: Beginnings of headings, tables, lists, quotations, HTML and directives, and paragraphs that are wholly emphasis.
_NOT_PROSE = re.compile(r"[#|<>=]|[-*+] |\d+\. |!{1,3}[ \[]|:::|(\*{1,2})[^*]+\1$")


class Entry(NamedTuple):
    """A page: its section of the navigation, its title, its address, and its text."""

    section: str
    title: str
    url: str
    text: str


def render(name: str, description: str, entries: Iterable[Entry]) -> str:
    """The text of llms.txt.

    Args:
        name: The project's name.
        description: What the project is, in a sentence or two.
        entries: The pages, in the order of the navigation.
    """
    sections: dict[str, list[str]] = {}
    for entry in entries:
        about = first_sentence(entry.text)
        line = f"- [{entry.title}]({entry.url})" + (f": {about}" if about else "")
        sections.setdefault(entry.section, []).append(line)
    parts = [f"# {name}", f"> {description}"]
    parts += [f"## {section}\n\n" + "\n".join(lines) for section, lines in sections.items()]
    return "\n\n".join(parts) + "\n"


def first_sentence(text: str) -> str:
    """The first sentence below the title of a page, without its markup.

    >>> first_sentence("# Title\\n\\nA [layer](x.md) has weights. More.")
    'A layer has weights.'
    >>> first_sentence("**A warning.**\\n\\n`load` reads data: images or texts. `data.load(name)` is the same.")
    '`load` reads data: images or texts.'
    """
    prose = re.sub(r"^(```|<!--).*?(```|-->)$", "", text, flags=re.S | re.M)
    for paragraph in re.split(r"\n\s*\n", prose):
        plain = " ".join(paragraph.split())
        if plain and not _NOT_PROSE.match(plain) and not plain.startswith("[Open or"):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", plain)
            return re.split(r"(?<=\.\*\*)\s|(?<=\.)\s(?=[`*]*[A-Z]|[`*])", plain)[0].rstrip(":")
    return ""
