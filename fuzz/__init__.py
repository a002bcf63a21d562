"""Hostile input by the hundred thousand: none may end in anything but a result or one sentence."""
