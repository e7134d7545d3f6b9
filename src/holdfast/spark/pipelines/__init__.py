"""`holdfast.spark.pipeline` and `holdfast run`: the builder, the file, and running it."""
