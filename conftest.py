"""Where there is no GPU, its kernels run in Triton's interpreter, which is told at import."""

import os
import shutil
from importlib.util import find_spec

if shutil.which("nvidia-smi") is None:
    os.environ["TRITON_INTERPRET"] = "1"
collect_ignore = [] if find_spec("triton") else ["src/urna/local/engine/convolve.py"]
