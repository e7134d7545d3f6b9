"""Histories of what clients saw and what was stored, and the checkers that judge them."""
