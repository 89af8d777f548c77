// Package trial has what the tests with real processes have in common: the binary under test,
// waits for what a cluster does, and loads of the Go client.
//
// It stands on package chaos, which owns the processes and imports nothing of what it tests; the
// client of the product is imported here. Only tests use it. Unless it says otherwise, a function
// may be called from the test's goroutine only.
//
// Every wait has a deadline that only a hang reaches, on a machine that is much slower than
// usual as well. No function judges how long something took.
package trial
