"""`mcp-probe top`: what this user's live servers do right now."""
