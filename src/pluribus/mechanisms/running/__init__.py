"""Running the members: engines, plans, losses, freezing."""
