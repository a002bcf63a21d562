"""The networks, one file each; the file's name is the network's."""
