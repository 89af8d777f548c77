package survey

// Locks is what the leader tells of sessions, locks and frontiers. It has no names, which only operators and users may read: see isotone locks list.
type Locks struct {
	Sessions int `json:"sessions"`
	Held     int `json:"held"`
	Waiting  int `json:"waiting"` // requests
	// Groups is how many groups of writers there are, LagSeconds how far the frontier is behind that is furthest behind.
	Groups     int     `json:"groups"`
	LagSeconds float64 `json:"lagSeconds"`
	// Longest are the locks that have been held for the longest time, the oldest first, at most LongestMax.
	Longest []HeldLock `json:"longest"`
}

// LongestMax bounds Locks.Longest.
const LongestMax = 10

// HeldLock is a lock that is held.
type HeldLock struct {
	Token string `json:"token"` // of 64 bits, decimal
	// Session is the hash of the session that holds it, as isotone locks list shows it.
	Session string  `json:"session"`
	Seconds float64 `json:"seconds"` // since it was granted, by oracle time
}
