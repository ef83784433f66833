"""The version, read by the package, its build and its records."""

VERSION = "0.2.0"
