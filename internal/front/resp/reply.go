package resp

import "strconv"

// reply appends to the output in RESP2 or RESP3. A container begins with its length; its
// elements follow.
type reply struct {
	b  []byte
	v3 bool
}

func (r *reply) head(kind byte, n int64) {
	r.b = append(r.b, kind)
	r.b = strconv.AppendInt(r.b, n, 10)
	r.b = append(r.b, '\r', '\n')
}

// simple appends a simple string, which must not contain line ends.
func (r *reply) simple(text string) {
	r.b = append(r.b, '+')
	r.b = append(r.b, text...)
	r.b = append(r.b, '\r', '\n')
}

func (r *reply) ok() { r.simple("OK") }

func (r *reply) integer(n int64) { r.head(':', n) }

// decimal appends n, which is not negative, as a bulk string.
func (r *reply) decimal(n int64) {
	var digits [20]byte
	r.bulkBytes(strconv.AppendInt(digits[:0], n, 10))
}

func (r *reply) bulk(text string) {
	r.head('$', int64(len(text)))
	r.b = append(r.b, text...)
	r.b = append(r.b, '\r', '\n')
}

func (r *reply) bulkBytes(text []byte) {
	r.head('$', int64(len(text)))
	r.b = append(r.b, text...)
	r.b = append(r.b, '\r', '\n')
}

// text appends a verbatim string.
func (r *reply) text(text string) {
	if !r.v3 {
		r.bulk(text)
		return
	}
	r.head('=', int64(len("txt:")+len(text)))
	r.b = append(r.b, "txt:"...)
	r.b = append(r.b, text...)
	r.b = append(r.b, '\r', '\n')
}

func (r *reply) null() {
	if r.v3 {
		r.b = append(r.b, "_\r\n"...)
	} else {
		r.b = append(r.b, "$-1\r\n"...)
	}
}

// nullArray appends null in place of an array.
func (r *reply) nullArray() {
	if r.v3 {
		r.b = append(r.b, "_\r\n"...)
	} else {
		r.b = append(r.b, "*-1\r\n"...)
	}
}

func (r *reply) array(n int) { r.head('*', int64(n)) }

// dict begins a map of n pairs.
func (r *reply) dict(n int) {
	if r.v3 {
		r.head('%', int64(n))
	} else {
		r.head('*', 2*int64(n))
	}
}

// set begins a set of n elements.
func (r *reply) set(n int) {
	if r.v3 {
		r.head('~', int64(n))
	} else {
		r.head('*', int64(n))
	}
}
