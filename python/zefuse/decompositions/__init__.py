"""What of a graph is taken apart before the importer sees it: tables, and operators in terms of others (docs/adding_an_op.md)."""
