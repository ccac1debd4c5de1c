"""The warm engine: one Spark that stays up between commands, reached over Spark Connect.

It listens on the loopback address, requires a random token, and is one per warehouse folder.
"""
