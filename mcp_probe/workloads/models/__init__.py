"""Programs that the comparisons run in a process of their own: one way of doing a piece of work each."""
