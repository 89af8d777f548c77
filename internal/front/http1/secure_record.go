package http1

// recordHeader is the size of what is in front of every record: a type, a version, and the
// length of the rest (RFC 8446 §5.1). None of it is encrypted.
const recordHeader = 5

// records follows a stream of TLS records, to know where they end. It looks at nothing
// else.
type records struct {
	header [recordHeader]byte
	have   int // bytes of the header of the record under way
	left   int // bytes of it that are to come, when the header is complete
}

// next follows b to the end of the record under way, or of b. It returns how many bytes
// that is, and whether the record ends there.
func (r *records) next(b []byte) (n int, whole bool) {
	if r.have < recordHeader {
		n = copy(r.header[r.have:], b)
		if r.have += n; r.have < recordHeader {
			return n, false
		}
		r.left = int(r.header[3])<<8 | int(r.header[4])
	}
	more := min(r.left, len(b)-n)
	if r.left -= more; r.left > 0 {
		return n + more, false
	}
	r.have = 0
	return n + more, true
}

// count follows b and returns how many records end in it.
func (r *records) count(b []byte) (sum int) {
	for len(b) > 0 {
		n, whole := r.next(b)
		if b = b[n:]; whole {
			sum++
		}
	}
	return sum
}
