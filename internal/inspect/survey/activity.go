package survey

// Activity is what a node tells operators about its users, beside who they are, at /admin/security.
type Activity struct {
	// LastMove is the latest move of time far ahead of the clock; nil if the node has seen none since it started.
	LastMove *Move `json:"lastMove,omitempty"`
	// Uses has what each user has used of the node since it started, by name, without those who have asked for nothing.
	Uses []Use `json:"uses,omitempty"`
}

// Use is what a user has used of a node. User is a name in parentheses for those who are not on the list of users.
type Use struct {
	User string `json:"user"`
	// Requests were answered, with Timestamps: timestamps and IDs.
	Requests   uint64 `json:"requests,string"`
	Timestamps uint64 `json:"timestamps,string"`
	// LackedRole and OverQuota were refused.
	LackedRole uint64 `json:"lackedRole,string"`
	OverQuota  uint64 `json:"overQuota,string"`
}
