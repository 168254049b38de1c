"""The parts of the report that are tables or figures, one module each; ``content`` puts them in order."""
