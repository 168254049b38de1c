"""The accelerator: each `mcp_probe/native/NAME.c` is an extension `_NAME` of its own, which includes headers beside it.

Where it cannot be compiled the package is installed without it, and does the same in Python.
MCP_PROBE_BUILD=pure leaves it out on purpose: that wheel serves every interpreter and machine.
"""

import os
from glob import glob
from pathlib import Path

from setuptools import Extension, setup  # type: ignore[import-untyped]

EXTENSIONS = [
    Extension(
        f"mcp_probe.native._{Path(source).stem}",
        [source],
        depends=sorted(glob("mcp_probe/native/*.h")),
        extra_compile_args=["-std=c11", "-O2", "-g0"],
        optional=True,
    )
    for source in sorted(glob("mcp_probe/native/*.c"))
]

setup(ext_modules=[] if os.environ.get("MCP_PROBE_BUILD") == "pure" else EXTENSIONS)
