"""How the site is built: `make docs`, or `sphinx-build -W docs build/docs`. No network."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_extensions")]

import urna

project = "Urna"
author = "The Urna authors"
copyright = "The Urna authors. Apache-2.0"
version = release = urna.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "generated_reference",  # docs/_extensions: one page for each package, one for the commands
]
exclude_patterns = ["_extensions"]
highlight_language = "text"  # a block without a language shows what was printed
smartquotes = False  # -- stays what a command line means by it

html_theme = "furo"
html_title = f"Urna {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

default_role = "code"  # docstrings write `names` as Markdown does
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Guarantee", "Assumes", "Proof"]
suppress_warnings = ["myst.strikethrough"]
