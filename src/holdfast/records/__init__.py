"""Record batches: check, stamp, decode, encode, compress. Pure."""
