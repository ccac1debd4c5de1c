"""What streams in: a connector for each kind of source, read in batches by position."""
