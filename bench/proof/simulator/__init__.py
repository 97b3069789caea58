"""Simulates hosts, clients, lines and disks in virtual time; one seed always gives the same run. Next: world.py."""
