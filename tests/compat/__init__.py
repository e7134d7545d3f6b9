"""The same tests against Holdfast and against Apache Kafka, through four client families."""
