"""An epoch: runs records through the stages of the plan and their lanes, without Spark and Kafka."""
