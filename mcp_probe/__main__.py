"""`python -m mcp_probe` is `mcp-probe`."""

from __future__ import annotations

import sys

from mcp_probe.cli import main

if __name__ == "__main__":
    sys.exit(main())
