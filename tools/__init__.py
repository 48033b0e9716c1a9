"""What the project is built and released with; none of it ships."""
