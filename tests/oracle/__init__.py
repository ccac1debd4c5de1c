"""The meaning of views and changes, as small pure Python that tests can trust."""
