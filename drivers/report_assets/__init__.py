"""Style and script of the report page."""
