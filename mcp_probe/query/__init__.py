"""``mcp-probe query``: SQL over recordings."""
