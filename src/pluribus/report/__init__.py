"""Tables and a page for people, made from records and their outcomes alone."""
