"""One module per Kafka API: the field tables of its request and its response. Pure."""
