"""What a running server tells who watches it, and what it keeps for when something goes wrong."""
