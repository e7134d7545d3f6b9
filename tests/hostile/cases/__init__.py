"""The tables of bad inputs, one module for each family."""
