"""What people look at; made of records alone."""
