"""Studies: whole worlds in virtual time, as questions with answers."""
