"""Links, how gangs share them, and the topology they form."""
