"""A shop that is too small to fail."""
