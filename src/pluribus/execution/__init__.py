"""Running the members: plans, runs, and what they cost."""
