"""Layers: what a network is made of beside attention, each forward above its backward."""
