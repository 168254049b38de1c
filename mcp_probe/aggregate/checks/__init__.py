"""One small pure function per finding: a summary and thresholds in, findings out."""
