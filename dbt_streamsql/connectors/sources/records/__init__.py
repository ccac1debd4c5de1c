"""How the texts of records become typed values."""
