// Package operation tests what operators do, with real processes: the commands of the runbook as
// they stand there, the doctor, backup, restore and recovery. It has tests only.
package operation
