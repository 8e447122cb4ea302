"""What became of a model, for people: explain, its tables' words, and what torch's logs are told."""
