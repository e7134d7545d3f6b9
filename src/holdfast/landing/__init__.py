"""Where records come to rest: the landing chain, the ledger of micro-batches, file formats."""
