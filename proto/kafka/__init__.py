"""Messages and settings of mode "kafka". Next: messages.py."""
