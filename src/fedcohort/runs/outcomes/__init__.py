"""What came out of runs: compared over seeds, told apart by their conditions, tabulated as papers do."""
