"""Networks for images of 32 pixels, timm's networks for larger ones, and the baselines that are not deep."""
