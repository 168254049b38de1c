"""The report as one HTML page, which loads nothing: frames in, a window of them kept, markup, style and script out."""
