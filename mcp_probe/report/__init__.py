"""A summary as people read it: on a console, or as JSON."""
