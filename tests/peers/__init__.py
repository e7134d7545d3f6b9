"""Real processes that the tests and the benchmarks talk to: Apache Kafka, Holdfast, a Java client.

It owns their start, readiness and end. It must never end a process that it did not start.
"""
