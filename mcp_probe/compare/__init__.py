"""``mcp-probe compare``: what two runs have not in common, and whether that is more than noise."""
