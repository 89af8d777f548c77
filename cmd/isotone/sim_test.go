package main

import "testing"

func TestSim_RefusesATimeLimitOutOfRange(t *testing.T) {
	for _, minutes := range []string{"1e12", "1000001", "-1", "NaN"} {
		wantRun(t, exitUsage, "", "--minutes: want 0 to 1000000", "sim", "--runs", "5", "--minutes="+minutes)
	}
}

// TestSim_FailsIfNothingRan. A time limit that ends the runs early is no failure otherwise.
func TestSim_FailsIfNothingRan(t *testing.T) {
	wantRun(t, exitFailure, "runs         0 of 1", "ended before one run was complete", "sim", "--minutes", "1e-12")
}
