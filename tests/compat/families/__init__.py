"""Client families behind one interface, so that a test is written once for all of them."""
