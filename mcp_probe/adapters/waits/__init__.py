"""What handlers wait for outside the loop and its pools: one file a library."""
