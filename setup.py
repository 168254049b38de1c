"""The accelerator: each `mcp_probe/native/NAME.c` is an extension `_NAME` of its own, which includes headers beside it.

Where it cannot be compiled the package is installed without it, and does the same in Python.
MCP_PROBE_BUILD=pure leaves it out on purpose: that wheel serves every interpreter and machine.
"""

import os
import re
from glob import glob
from pathlib import Path

from setuptools import Extension, setup  # type: ignore[import-untyped]

EXTENSIONS = [
    Extension(
        f"mcp_probe.native._{Path(source).stem}",
        [source],
        depends=sorted(glob("mcp_probe/native/*.h")),
        extra_compile_args=["-std=c11", "-O2", "-g0", "-Werror=implicit-function-declaration"],
        optional=True,
    )
    for source in sorted(glob("mcp_probe/native/*.c"))
]

# tomllib is not there on Python 3.10, and what builds a package needs nothing but setuptools.
_ADDRESS = re.search(r'^repository = "(.*)"$', Path(__file__).with_name("pyproject.toml").read_text("utf-8"), re.M)
REPOSITORY = _ADDRESS[1].rstrip("/") if _ADDRESS else ""
URLS = {
    "Documentation": f"{REPOSITORY}/blob/main/docs/getting-started.md",
    "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
    "Issues": f"{REPOSITORY}/issues",
    "Source": REPOSITORY,
}

setup(
    project_urls=URLS if REPOSITORY else {},
    ext_modules=[] if os.environ.get("MCP_PROBE_BUILD") == "pure" else EXTENSIONS,
)
