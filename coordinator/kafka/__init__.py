"""Mode "kafka": the transaction coordinator and the group coordinator. Next: transactions.py."""
