"""The machinery behind the public names. Private: nothing here is promised to stay."""
