"""``mcp-probe load``: requests that arrive on a schedule of their own, whatever the server makes of them."""
