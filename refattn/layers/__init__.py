"""Layers: frozen settings with parameters(), forward and backward."""
