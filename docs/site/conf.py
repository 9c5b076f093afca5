"""Sphinx's settings: everything that a page needs lies beside it, so the site opens from a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import refattn  # noqa: E402

project, author, version = "refattn", "the authors of refattn", refattn.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "docs.site.hooks"]
html_theme = "furo"
html_title = f"refattn {version}"
html_static_path = ["_static"]
html_css_files = ["side_by_side.css"]
html_js_files = [("side_by_side.js", {"defer": "defer"}), ("numbers.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_show_search_summary = False                # summaries are fetched, which a folder does not allow
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
autodoc_member_order = "bysource"
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type"]
