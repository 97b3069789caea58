"""A batch as Kafka's message, for ../sender.py. Next: producer.py and idempotent_producer.py, who send."""

from ...proto.kafka.messages import Produce
from ...proto.kafka.settings import KafkaSettings
from ..requests import Exchange
from ..sender import Batch, Make, Sender

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


def produce(exchange: Exchange[KafkaSettings]) -> Make:
    """How this client's senders make a Produce of a batch."""
    version = exchange.settings.protocol_version

    def made(sender: Sender, batch: Batch, address: int, number: int) -> Produce:
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

    return made
