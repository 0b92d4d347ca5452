"""One family of networks a file; each says which paper it follows and where it chose."""
