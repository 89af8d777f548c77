package isotone

// ReadMode says what a leader must have checked before it answers.
type ReadMode uint8

const (
	// ReadDefault leaves the choice to the node's READ_MODE setting.
	ReadDefault ReadMode = iota
	// ReadQuorum: a quorum confirmed the leadership in a round that began after
	// the request arrived. Needs no clock at all (invariant I4).
	ReadQuorum
	// ReadLease: the leader holds a lease by its own clock. One network round
	// trip faster, and as good as the assumed bound on clock rates (I5).
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

// ParseReadMode reads "quorum" or "lease". Anything else gives an error that
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
