// Package membership tests who is a member: real processes form a cluster, join, are replaced,
// removed, moved and copied, under a load of which no call may fail. It has tests only.
//
// TestMember is a storm of such changes, TestMemberSteps kills at one step of each command that
// changes members or the leadership. They are short here; "make member-storm" and "make
// member-steps" run them for minutes.
package membership
