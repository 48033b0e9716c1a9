"""Systems other than Kafka: what is loaded from them, and delivered to them."""
