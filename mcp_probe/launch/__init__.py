"""`mcp-probe run`: the parent, what it injects into the command, and the channel between them."""
