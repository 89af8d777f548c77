"""Which files of the repository become pages, and what becomes of links to the others.

Pages keep their paths in the repository as source paths, so relative links mean the same here and on a
Git host. Links to other files of the repository lead to the host. Headings get the anchors of GitHub.
"""

import logging
import os
import re
import subprocess
import textwrap
import xml.etree.ElementTree as etree
from html import escape, unescape
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from markdown.extensions import Extension
from markdown.extensions import toc
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File, Files

log = logging.getLogger("mkdocs.hooks.isotone")

ROOT = Path(__file__).resolve().parent.parent

# Markdown files that are no pages: the form for pull requests, and notes beside code.
LEFT_OUT = (".github/", "internal/")

# The script that draws diagrams; build.sh sets it.
MERMAID = os.environ.get("MERMAID")

# Files beside pages: pictures and scripts.
ASSETS = (".svg", ".png")


def tracked():
    """The files of the repository, also those that are not committed yet."""
    out = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    return [name for name in out.splitlines() if (ROOT / name).is_file()]


def address(name):
    """The file of the site that a Markdown file becomes."""
    path = PurePosixPath(name)
    if name == "site/home.md":
        return "index.html"
    if name == "README.md":
        return "overview/index.html"
    if path.parts[0] == "docs":
        path = path.relative_to("docs")
    if path.name == "README.md":
        return str(path.parent / "index.html")
    return str(path.with_suffix("") / "index.html").lower()


def on_config(config):
    decisions = sorted(p.name for p in (ROOT / "docs/decisions").glob("0*.md"))
    for section in config.nav:
        for title, pages in section.items():
            if title == "Project":
                pages.append({"Decisions": ["docs/decisions/" + name for name in decisions]})
    config.markdown_extensions.append(RepositoryLinks(config))
    config.mdx_configs.setdefault("toc", {}).update(slugify=slug, permalink=True, toc_depth=3, title="On this page")
    toc.unique = unique
    return config


def on_files(files, config):
    """The pages of the repository, with the theme's files."""
    found = [f for f in files if f.src_uri.startswith("assets/") and Path(f.src_dir) != ROOT / "docs"]
    for name in tracked():
        page = name.endswith(".md") and not name.startswith(LEFT_OUT)
        if page or (name.startswith("docs/") and name.endswith(ASSETS)):
            found.append(File(name, str(ROOT), config.site_dir, True, dest_uri=address(name) if page else None))
    here = str(ROOT / "site")
    found += [File("assets/" + name, here, config.site_dir, True) for name in os.listdir(here + "/assets")]
    if MERMAID:
        found.append(File.generated(config, "assets/mermaid.min.js", abs_src_path=MERMAID))
    return Files(found)


def slug(text, separator):
    """The anchor of a heading, as GitHub has it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def unique(name, taken, counts=None):
    """The anchor of a heading whose text another one of the page has: GitHub counts -1, -2 and so on."""
    count, anchor = 0, name
    while anchor in taken or not anchor:
        count += 1
        anchor = f"{name}-{count}"
    taken.add(anchor)
    return anchor


class RepositoryLinks(Extension):
    """Links to files of the repository that are no pages."""

    def __init__(self, config):
        super().__init__()
        self.settings = config
        self.page = None
        global links
        links = self

    def extendMarkdown(self, md):
        # Before the processor of MkDocs, whose priority is 0, which warns about what is no page.
        md.treeprocessors.register(Rewriter(md, self), "repository-links", 1)


links = None


def on_page_markdown(markdown, page, config, files):
    links.page, links.files = page, files
    return markdown


class Rewriter(Treeprocessor):
    def __init__(self, md, owner):
        super().__init__(md)
        self.owner = owner

    def run(self, root):
        for element in root.iter("a"):
            element.set("href", self.rewrite(element.get("href", "")))

    def rewrite(self, href):
        parts = urlsplit(href)
        if parts.scheme or parts.netloc or not parts.path:
            return href
        here = PurePosixPath(self.owner.page.file.src_uri).parent
        path = os.path.normpath(str(here / parts.path))
        readme = os.path.normpath(path + "/README.md")
        if self.owner.files.get_file_from_path(path):
            return href
        if self.owner.files.get_file_from_path(readme):
            return os.path.relpath(readme, here) + ("#" + parts.fragment if parts.fragment else "")
        target = ROOT / path
        if path.startswith("..") or not target.exists():
            return href  # MkDocs reports it
        settings = self.owner.settings
        kind = "tree" if target.is_dir() else "blob"
        return f"{settings.repo_url}/{kind}/{settings.extra['branch']}/{path}"


def on_page_content(html, page, config, files):
    describe(page, html)
    return with_diagrams(html, page)


def describe(page, html):
    """The description of a page, for search engines and previews, is its first paragraph."""
    texts = (unescape(re.sub(r"<[^>]+>", "", p)) for p in re.findall(r"<p>(.*?)</p>", html, re.DOTALL))
    first = next(filter(str.strip, texts), "")
    page.meta.setdefault("description", escape(textwrap.shorten(first, 200, placeholder=" …")))


def with_diagrams(html, page):
    """Diagrams need a script, which is large: only their pages load it."""
    if '<pre class="mermaid">' not in html:
        return html
    if not MERMAID:
        return html.replace('<pre class="mermaid">', '<pre class="diagram">')
    base = "../" * page.url.count("/")
    return html + f'<script src="{escape(base)}assets/mermaid.min.js"></script>'
