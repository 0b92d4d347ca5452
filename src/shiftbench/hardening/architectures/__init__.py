"""Networks for images of 32 pixels, those of timm for larger ones, and the baselines that are not deep."""
