"""An epoch: its records through the stages of the plan and the lanes of each; knows neither Spark nor Kafka."""
