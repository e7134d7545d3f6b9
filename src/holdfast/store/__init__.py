"""Objects in a store: the five operations that Holdfast needs, and put-if-absent on top of them."""
