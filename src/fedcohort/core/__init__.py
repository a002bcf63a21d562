"""What a method is and what a round does with it: roles, records, state, tasks, evaluation."""
