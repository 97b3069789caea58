"""The client of mode "pulsar", on the application's side. Next: client.py."""
