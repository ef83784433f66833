"""What people look at: tables and a page, made of records and their outcomes alone."""
