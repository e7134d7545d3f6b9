"""Named bad inputs through a real broker process: a clear error or a closed connection, each."""
