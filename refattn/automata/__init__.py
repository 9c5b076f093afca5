"""Finite automata as tables, and as exact weights of a RegularGPT."""
