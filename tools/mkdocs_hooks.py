"""What the build of the site adds to MkDocs: generated pages, tables, figures, links to the source, llms.txt.

MkDocs calls the functions by their names (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from sitegen import commands, figures, links_out, llms, notebooks, reference, regions
from sitegen.contents import REGIONS

ROOT = Path(__file__).resolve().parent.parent
#: The Markdown of each page by its path, as it is published, with its regions filled.
_texts: dict[str, str] = {}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference and of the notebooks, and draw the figures."""
    made = dict(reference.pages()) | {commands.PAGE: commands.page()}
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        made[links_out.page_of_notebook(file.src_uri)] = notebooks.page(
            Path(file.abs_src_path or ""), file.name + ".ipynb"
        )
    for name in figures.FIGURES:
        path = f"figures/{name}.svg"
        if (old := files.get_file_from_path(path)) is not None:
            files.remove(old)
        made[path] = figures.as_file(name)
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Fill the regions, and turn links to files outside of docs into links to the repository."""
    if page.file.generated_by:
        page.edit_url = None
    text = regions.fill(markdown, REGIONS, page.file.src_uri)
    text = links_out.rewrite(text, page.file.src_uri, str(config.repo_url), ROOT)
    _texts[page.file.src_uri] = links_out.link_reference_pages(text)
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", text, flags=re.M)


def on_page_content(html: str, **_: Any) -> str:
    """Put figures into the page itself, so that they have its colors in light and in dark mode."""
    return re.sub(r'<img [^>]*src="[^"]*figures/([\w-]+)\.svg"[^>]*>', lambda found: figures.in_page(found[1]), html)


def on_nav(nav: Navigation, config: MkDocsConfig, **_: Any) -> Navigation:
    """Remember the pages in the order of the navigation, for llms.txt."""
    config.extra["pages_in_order"] = nav.pages
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, and the Markdown of every written page beside it."""
    site, entries = Path(config.site_dir), []
    pages: list[Any] = config.extra["pages_in_order"]
    for page in pages:
        path, text = page.file.src_uri, _texts[page.file.src_uri]
        is_written = not path.startswith("reference/")
        if is_written:
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        section = page.ancestors[-1].title if page.ancestors else str(config.site_name)
        url = f"{config.site_url}{path if is_written else page.url}"
        entries.append(llms.Entry(section, page.title, url, text))
    description = " ".join(str(config.site_description).split())
    (site / "llms.txt").write_text(llms.render(str(config.site_name), description, entries))
