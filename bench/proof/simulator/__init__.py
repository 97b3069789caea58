"""Hosts, clients, lines and disks in virtual time: a world that is the same for the same seed. Next: world.py."""
