"""`muster whatif` and `muster sim`."""
