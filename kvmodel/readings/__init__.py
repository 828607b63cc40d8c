"""Readings: each interprets the same transition system in its own way, and tests hold them to agree."""
