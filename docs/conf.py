from importlib.metadata import version as installed_version

import latex2mathml.converter
from docutils import nodes

project = "headstart"
author = "The headstart developers"
copyright = "The headstart developers"
release = version = installed_version("headstart")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80

copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"headstart {release}"
html_math_renderer = "mathml"


def inline_maths(writer, node):
    writer.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def displayed_maths(writer, node):
    maths = latex2mathml.converter.convert(node.astext(), display="block")
    writer.body.append(f'<div style="margin: 1em 0">{maths}</div>')
    raise nodes.SkipNode


def setup(app):
    # MathML, which browsers draw by themselves: pages must be readable offline.
    app.add_html_math_renderer("mathml", (inline_maths, None), (displayed_maths, None))


# Fields of several records may have the same name.
suppress_warnings = ["ref.python"]
