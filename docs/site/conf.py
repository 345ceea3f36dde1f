# SPDX-License-Identifier: Apache-2.0
# conf.py: how Sphinx writes the site. scripts/site prepares the pages and runs it; ZOFF_SITE_* come from there.
import os
import pathlib
import re

import furo
from docutils import nodes

project, version = "zoff", os.environ["ZOFF_SITE_VERSION"]
html_title = f"zoff {version}"
extensions = ["myst_parser", "breathe"]
myst_heading_anchors = 6
myst_url_schemes = ["http", "https", "mailto", "page"]
breathe_projects = {"zoff": os.environ["ZOFF_SITE_XML"]}
breathe_default_project = "zoff"
breathe_domain_by_extension = {"h": "c"}
primary_domain, highlight_language = "c", "none"
html_theme = "furo"
# Debian's build of the theme has its dark colours only for readers who choose them, not for browsers that prefer them.
dark = re.search(r'body\[data-theme="dark"\] \{(.*?)\}', (pathlib.Path(furo.__file__).parent / "theme/furo/static/styles/furo.css").read_text(), re.S)
html_theme_options = {"dark_css_variables": dict(re.findall(r"--([\w-]+): ([^;]+);", dark[1])) if dark else {}}
html_static_path = ["zoff.css"]
html_css_files, html_favicon = ["zoff.css"], "icon.svg"
html_copy_source, html_show_copyright, html_use_index = False, False, True
# The results of a search show the text around each hit, which takes a request that browsers refuse to pages of a folder.
html_js_files = [(None, {"body": "DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== 'file:'"})]


def keep_anchors(_, doctree):
    """Headings have the anchors that they have on a forge: Sphinx would write `host-memory` for `host_memory`."""
    for section in doctree.findall(nodes.section):
        anchor = section.get("myst-anchor", "").partition("#")[2]
        if anchor and anchor not in section["ids"]:
            section["ids"].insert(0, anchor)


def lead_to_pages(app, doctree, page):
    """page:docs/RANKS#over-nccl, which scripts/site wrote, becomes an address relative to this page."""
    for link in doctree.findall(nodes.reference):
        if link.get("refuri", "").startswith("page:"):
            target, _, anchor = link["refuri"][5:].partition("#")
            link["refuri"] = app.builder.get_relative_uri(page, target) + (anchor and "#" + anchor)


def mend_theme(app, _):
    """Debian's build of the theme imports two files in ways that only a web server on Debian can follow: put them in place."""
    for name, line, source in (("scripts/furo.js", r"^import Gumshoe.*$", "{static}/scripts/gumshoe-patched.js"),
                               ("styles/furo.css", r"^@import url\(/(javascript/[^)]*)\);$", "/usr/share/{0}")):
        static = pathlib.Path(app.outdir) / "_static"
        path = static / name
        path.write_text(re.sub(line, lambda match: pathlib.Path(source.format(*match.groups(), static=static)).read_text(), path.read_text(), flags=re.M))


def setup(app):
    app.connect("doctree-read", keep_anchors, priority=100)
    app.connect("doctree-resolved", lead_to_pages)
    app.connect("build-finished", mend_theme)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
