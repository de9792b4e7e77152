"""Image captioning: Show, Attend and Tell."""
