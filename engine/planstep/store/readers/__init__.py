"""Views of a store that another process owns: leases, marks, read-only stores. Next: readonly.py."""
