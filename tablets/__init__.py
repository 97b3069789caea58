"""State machines that hold data. Next: participant.py."""
