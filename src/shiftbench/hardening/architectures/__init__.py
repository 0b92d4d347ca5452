"""Networks for images of 32 pixels, timm's networks for larger ones, and the baselines that are not deep.

``base`` finds an architecture by its name and holds the layers that several share; ``residual`` and ``dense`` define
networks, ``own`` wraps a network of the user's, ``baselines`` are fitted instead of trained. A network is a torch
module that maps inputs to logits; how it is trained is no concern of it.
"""
