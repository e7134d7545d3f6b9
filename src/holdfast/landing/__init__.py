"""Landing of records: the landing chain, the ledger of micro-batches, file formats."""
