"""The site's own extension, found as Sphinx finds it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "docs" / "_extensions"))
