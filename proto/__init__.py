"""What travels and what is stored: ids, keys, batches, messages. Next: messages.py."""
