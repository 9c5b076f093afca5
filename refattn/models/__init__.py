"""Whole networks: the papers' models around any attention and feed-forward layer."""
