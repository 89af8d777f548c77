package secure

// recordHeader is the size of the header of a record: type, version, and the length of
// what follows (RFC 8446 §5.1). It is not encrypted.
const recordHeader = 5

// records tracks where the records of a stream end.
type records struct {
	header [recordHeader]byte
	have   int // bytes of the current header
	left   int // bytes of the current record still to come, once the header is complete
}

// next advances to the end of the current record, or of b. It returns how many bytes
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

// most returns how many bytes can be read that do not go beyond the current record.
func (r *records) most() int {
	if r.have < recordHeader {
		return recordHeader - r.have
	}
	return r.left
}

// count advances to the end of b and returns how many records end in it.
func (r *records) count(b []byte) (sum int) {
	for len(b) > 0 {
		n, whole := r.next(b)
		if b = b[n:]; whole {
			sum++
		}
	}
	return sum
}
