"""Handlers of requests that read and write records: Produce, Fetch, offsets, DeleteRecords."""
