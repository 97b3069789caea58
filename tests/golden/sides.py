"""Lists the sides, under the names of their files of answers. A further mode is one more. Next: spoken.py."""

from in_place_sides import Kafka, KafkaTwo, Pulsar, PulsarKept
from side import Deterministic, Side

SIDES: dict[str, type[Side]] = {
    "deterministic": Deterministic,
    "kafka": Kafka,
    "kafka-2": KafkaTwo,
    "pulsar": Pulsar,
    "pulsar-kept": PulsarKept,
}
