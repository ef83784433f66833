"""Serve an exported ensemble over HTTP, by `pluribus serve` or `serving.server.serve`. Imports no torch."""
