"""The client of mode "kafka", without threads or clocks. Next: client.py."""
