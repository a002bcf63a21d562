"""The same methods across real machines, through Flower. Only this package imports ``flwr``.

``server_app`` runs our round loop and turns what it asks of an engine into messages; ``client_app`` answers
them with the code that simulates a client. No method knows which of the two it runs in.
"""
