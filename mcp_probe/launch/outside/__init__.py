"""A running process, looked at from outside: nothing is injected, and nothing of it need run."""
