package live

import "strings"

// AcceptsGzip reports whether a request with these Accept-Encoding lines (RFC 9110
// §12.5.3) is to be answered with gzip: it is acceptable, and no less wanted than no
// coding. Without any line it is not. A coding with a malformed weight counts as
// refused. It allocates nothing.
func AcceptsGzip(lines ...string) bool {
	gzip, identity, other := -1, -1, -1 // weights in thousandths
	for _, line := range lines {
		for more := true; more; {
			var element string
			element, line, more = strings.Cut(line, ",")
			coding, parameter, weighted := strings.Cut(element, ";")
			weight := 1000
			if weighted {
				weight = parseWeight(strings.Trim(parameter, blanks))
			}
			switch coding = strings.Trim(coding, blanks); {
			case coding == "*":
				other = max(other, weight)
			case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
				gzip = max(gzip, weight)
			case strings.EqualFold(coding, "identity"):
				identity = max(identity, weight)
			}
		}
	}
	if gzip < 0 {
		gzip = other
	}
	if identity < 0 {
		identity = other
	}
	return gzip > 0 && gzip >= identity
}

// blanks is OWS of RFC 9110 §5.6.3.
const blanks = " \t"

// parseWeight reads "q=" and a number from 0 to 1 with up to three decimals (RFC 9110
// §12.4.2), in thousandths. It is 0 for anything else.
func parseWeight(s string) int {
	if len(s) < len("q=0") || s[0]|0x20 != 'q' || s[1] != '=' {
		return 0
	}
	whole, decimals, pointed := strings.Cut(s[2:], ".")
	if whole != "0" && whole != "1" || len(decimals) > 3 {
		return 0
	}
	weight := int(whole[0]-'0') * 1000
	unit := 100
	for i := 0; pointed && i < len(decimals); i++ {
		if decimals[i] < '0' || decimals[i] > '9' {
			return 0
		}
		weight += int(decimals[i]-'0') * unit
		unit /= 10
	}
	if weight > 1000 {
		return 0
	}
	return weight
}

// matchesTag reports whether a value of If-None-Match (RFC 9110 §13.1.2) names the
// entity tag, by weak comparison, or is "*". What follows a malformed part is not
// read. It allocates nothing.
func matchesTag(field, tag string) bool {
	field = strings.Trim(field, blanks)
	if field == "*" {
		return true
	}
	for {
		field = strings.TrimLeft(field, " \t,") // a list may have empty elements
		field = strings.TrimPrefix(field, "W/")
		if field == "" || field[0] != '"' {
			return false
		}
		size := 1
		for size < len(field) && isTagByte(field[size]) {
			size++
		}
		if size == len(field) || field[size] != '"' {
			return false
		}
		size++
		if field[:size] == tag {
			return true
		}
		field = strings.TrimLeft(field[size:], blanks)
		if field != "" && field[0] != ',' {
			return false
		}
	}
}

// isTagByte reports whether c may be within the quotes.
func isTagByte(c byte) bool { return c == 0x21 || 0x23 <= c && c != 0x7f }
