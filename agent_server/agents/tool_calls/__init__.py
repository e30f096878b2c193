"""Tool calls as models write them: one module for each family, and the parser of responses."""
