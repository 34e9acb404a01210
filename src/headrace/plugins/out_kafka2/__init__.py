"""The output `kafka2`: records as messages of Kafka, by aiokafka (`pip install 'headrace[kafka]'`).

    chunk --> messages.py (topic, partition, key, headers, value) --> output.py --> one producer per lane

parameters.py        what is configured
messages.py          a record -> a message
output.py            producers, and which messages of a chunk are to be sent again

https://docs.fluentd.org/output/kafka, https://github.com/fluent/fluent-plugin-kafka

Different on purpose: of a chunk that failed in part, only the messages without an acknowledgement are sent again;
a record that cannot be a message goes to @ERROR and is not just skipped.
"""

from headrace.plugins.out_kafka2.output import Kafka2Output

__all__ = ["Kafka2Output"]
