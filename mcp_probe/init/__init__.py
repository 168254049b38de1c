"""`mcp-probe init`: the configuration that has an MCP client start its server under the probe."""
