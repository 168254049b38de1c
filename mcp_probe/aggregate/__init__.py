"""What it means: frames in, a summary out. Pure functions of frames; no loop, no SDK, no clock."""
