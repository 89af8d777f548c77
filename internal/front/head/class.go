package head

// Class is a set of bytes.
type Class uint8

// The classes.
const (
	Token  Class = 1 << iota // names and methods
	Value                    // field values: no control characters but tab
	Target                   // request targets: printable ASCII without "#"
	Host                     // host names, addresses and ports
	Hex                      // hexadecimal digits
)

var classes = func() (table [256]Class) {
	for c := range 256 {
		lower := byte(c) | 0x20
		if '0' <= c && c <= '9' || 'a' <= lower && lower <= 'z' && c < 0x80 {
			table[c] |= Token | Host
		}
		if '0' <= c && c <= '9' || 'a' <= lower && lower <= 'f' && c < 0x80 {
			table[c] |= Hex
		}
		if c >= ' ' && c != 0x7f || c == '\t' {
			table[c] |= Value
		}
		if c > ' ' && c < 0x7f && c != '#' {
			table[c] |= Target
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		table[c] |= Token
	}
	for _, c := range []byte("-._:[]~%") {
		table[c] |= Host
	}
	return table
}()

// Has reports whether c belongs to the class.
func (class Class) Has(c byte) bool { return classes[c]&class != 0 }

// All reports whether all of b belong to it.
func (class Class) All(b []byte) bool {
	for _, c := range b {
		if !class.Has(c) {
			return false
		}
	}
	return true
}

// end returns where from at on the first byte follows that does not belong to it. There must
// be one.
func (class Class) end(b []byte, at int) int {
	for class.Has(b[at]) {
		at++
	}
	return at
}
