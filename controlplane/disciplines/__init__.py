"""Queue disciplines: the order of one queue, and what happens when its head cannot start. One file for each."""
