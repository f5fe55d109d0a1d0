"""The documents of a job: pods, services, config maps, secrets, accounts, pod groups. Pure."""
