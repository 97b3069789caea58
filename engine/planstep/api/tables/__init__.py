"""Tables, and loading them. Next: table.py."""
