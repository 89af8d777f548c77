//go:build !linux

package utc

func readClockBound() (Status, bool) { return Status{}, false }

func readKernel() (Status, bool) { return Status{}, false }
