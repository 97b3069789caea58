"""Mode "kafka": who decides transactions, and who keeps groups' positions. Next: transactions.py."""
