"""Holds published figures, from other hardware, to show apart from those measured here; no rule compares them.

Source: "Transactional work with topics: architecture and comparison of solutions in Apache Kafka and YDB",
HighLoad++, by YDB's topic team; "Transactions in Apache Kafka", Confluent.

Next: published.py, which shows them.
"""

HARDWARE = (
    "from 8 hosts of 2 × Xeon E5-2660v4 (56 threads), 256 GB, 2 NVMe each, with replicas and a "
    "network. They used 100 partitions and a commit every 500 ms"
)
RATE = "100 MB/s"
LATENCIES = (
    ("YDB, published", (4, 79, 153, 275), (367, 575, 644, 690)),
    ("Kafka, published", (28, 73, 96, 109), (321, 550, 577, 605)),
)
"""Write and end to end, ms: p50, p95, p99, p99.9."""
RESOURCES_RATE = "800 MB/s"
RESOURCES = (
    ("YDB, published", "with", 82, 3800, 4400, 3800),
    ("YDB, published", "without", 56, 3500, 4200, 3350),
    ("Kafka, published", "with", 24, 3600, 2400, 1600),
    ("Kafka, published", "without", 16, 3600, 2400, 1600),
)
"""Transactions, CPU cores, MB/s to disk, in, out; of all hosts, replicas included."""
INTERVAL = "Confluent: 1 KB records at full rate with a commit every 100 ms lose 3 % of throughput"
WHO_PERSISTS = (
    ("registers the transaction's id", "coordinator", "not"),
    ("registers partitions, consumers", "coordinator", "not"),
    ("records, positions set aside", "partition, group", "partition"),
    ("changes fixed before the intent", "nobody", "partition"),
    ("intent to commit", "coordinator", "coordinator"),
    ("publication", "on disk", "on disk × 3"),
)
"""The component that has it on disk: Kafka, then YDB. Left out: those that have it in memory (YDB's proxy)."""
WHO_COLUMNS = ("", "Kafka, published", "YDB, published")
FLUSHES_UNKNOWN = "The talk does not say when Kafka flushed its log."
