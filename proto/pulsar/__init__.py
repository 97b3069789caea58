"""Messages and settings of mode "pulsar". Next: messages.py."""
