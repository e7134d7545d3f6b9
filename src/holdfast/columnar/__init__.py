"""Record batches as Arrow columns, and hashes of columns: compiled kernels, pure."""
