"""What goes wrong in a simulation: the store, the disks, the clocks, and when."""
