"""Kernels of a GPU run in Triton's interpreter where there is none; it must be told at import."""

import os
from importlib.util import find_spec

os.environ.setdefault("TRITON_INTERPRET", "1")
collect_ignore = [] if find_spec("triton") else ["src/urna/local/convolve.py"]
