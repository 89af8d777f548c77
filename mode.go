package isotone

// ReadMode is what a leader must check before it answers.
type ReadMode uint8

const (
	// ReadDefault leaves the choice to the node's READ_MODE setting.
	ReadDefault ReadMode = iota
	// ReadQuorum: a quorum confirmed the leadership in a round that began after
	// the request arrived. It does not depend on clocks (I4).
	ReadQuorum
	// ReadLease: the leader holds a lease by its own clock. It saves a network
	// round trip, and is as safe as the assumed bound on clock rates (I5).
	ReadLease
)

// String returns "default", "quorum" or "lease".
func (m ReadMode) String() string {
	switch m {
	case ReadQuorum:
		return "quorum"
	case ReadLease:
		return "lease"
	default:
		return "default"
	}
}

// ParseReadMode parses "quorum" or "lease". Anything else gives an error that
// matches [ErrInvalidArgument].
func ParseReadMode(s string) (ReadMode, error) {
	switch s {
	case "quorum":
		return ReadQuorum, nil
	case "lease":
		return ReadLease, nil
	}
	return ReadDefault, Errorf(CodeInvalidArgument, "mode %q: want quorum or lease", s)
}
