"""Many runs: launching, planning, ranking."""
