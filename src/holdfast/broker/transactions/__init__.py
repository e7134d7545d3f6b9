"""The shell around the pure core of transactions: lanes, markers, checks between brokers."""
