"""`holdfast topic produce` and `holdfast topic consume`."""
