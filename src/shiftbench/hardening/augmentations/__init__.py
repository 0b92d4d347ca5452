"""What is done to training images: to one at a time, or to a batch at once."""
