"""Recipe grids that end in a study: train the variants, evaluate each, compare them."""
