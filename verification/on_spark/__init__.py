"""`make on-spark`: every record of an application with `engine = spark` is processed in a Spark task."""
