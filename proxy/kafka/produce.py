"""Makes Kafka's Produce message of a batch, for ../sender.py. Next: producer.py, idempotent_producer.py."""

from ...proto.kafka.messages import Produce
from ...proto.kafka.settings import KafkaSettings
from ..requests import Exchange
from ..sender import Batch, Make, Sender

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


def produce(exchange: Exchange[KafkaSettings]) -> Make:
    """Returns the function with which this client's senders make a Produce of a batch."""
    version = exchange.settings.protocol_version

    def make(sender: Sender, batch: Batch, address: int, number: int) -> Produce:
        return Produce(
            address,
            number,
            sender.name,
            sender.producer,
            sender.epoch,
            batch.sequence,
            batch.data,
            batch.records,
            version,
        )

    return make
