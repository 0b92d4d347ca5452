"""The workshop's pages: annotation, review, and the lead's view, rendered by the server, with little script."""
