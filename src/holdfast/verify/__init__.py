"""Histories, checkers and the deterministic simulation."""
