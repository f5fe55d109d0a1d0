"""Which gang is next: the order of queues and of the gangs within them."""
