"""The command line, and all that is printed or served."""
