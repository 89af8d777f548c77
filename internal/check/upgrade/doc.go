// Package upgrade tests what changes while a cluster runs: its version, from this one to
// a version to come, which knows one feature level more, and back, and the certificates between its nodes. Real processes are changed one
// after the other, under a load of which no call may fail. It has tests only.
//
// TestUpgrade_NoWrongAnswerInAStorm changes versions at random for seconds; "make upgrade-storm"
// does that for minutes.
package upgrade
