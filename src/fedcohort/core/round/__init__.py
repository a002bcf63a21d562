"""One round: who trains, what is exchanged, and what the updates make of groups and models."""
