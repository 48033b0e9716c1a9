"""What earlier starts have left in Kafka, and what changes it: position, plan of an edit, renames, savepoints, reset."""
