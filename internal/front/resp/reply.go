package resp

import "strconv"

// reply appends to the output in RESP2 or RESP3. A container is begun with its length,
// and its elements follow.
type reply struct {
	b  []byte
	v3 bool
}

func (r *reply) head(kind byte, n int64) {
	r.b = append(r.b, kind)
	r.b = strconv.AppendInt(r.b, n, 10)
	r.b = append(r.b, '\r', '\n')
}

// simple appends a line. It must not contain the end of one.
func (r *reply) simple(text string) {
	r.b = append(r.b, '+')
	r.b = append(r.b, text...)
	r.b = append(r.b, '\r', '\n')
}

func (r *reply) ok() { r.simple("OK") }

func (r *reply) integer(n int64) { r.head(':', n) }

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

// text appends what is meant for people to read.
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

// nullArray is null where an array would be.
func (r *reply) nullArray() {
	if r.v3 {
		r.b = append(r.b, "_\r\n"...)
	} else {
		r.b = append(r.b, "*-1\r\n"...)
	}
}

func (r *reply) array(n int) { r.head('*', int64(n)) }

// dict begins n pairs of key and value.
func (r *reply) dict(n int) {
	if r.v3 {
		r.head('%', int64(n))
	} else {
		r.head('*', 2*int64(n))
	}
}

// set begins n elements in no order.
func (r *reply) set(n int) {
	if r.v3 {
		r.head('~', int64(n))
	} else {
		r.head('*', int64(n))
	}
}

// strings appends a list of bulk strings.
func (r *reply) strings(list ...string) {
	r.array(len(list))
	for _, s := range list {
		r.bulk(s)
	}
}
