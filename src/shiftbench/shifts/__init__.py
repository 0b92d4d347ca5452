"""What is done to the images: nothing, a corruption at a severity, an attack, a style."""
