"""Which running gangs give up their devices for a waiting one."""
