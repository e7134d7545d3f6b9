"""Handlers of requests about the cluster: versions, metadata, coordinators."""
