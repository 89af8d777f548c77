package proxy

// via is the proxy's entry in the Via field (RFC 9110 §7.6.3).
const via = "1.1 isotone"

// appendRequest appends the head of the request for its backend, without the fields of the
// transaction and the blank line. addr is the client's IP address; continued says that the
// client's trace is continued. It changes the kinds of r's fields.
func (r *request) appendRequest(out, b []byte, addr string, continued, trustForwarded bool) []byte {
	out = append(out, b[:r.TargetEnd]...)
	out = append(out, " HTTP/1.1\r\n"...)
	for i := range r.fields {
		switch f := &r.fields[i]; f.kind {
		case kindHost, kindLength:
			f.kind = kindPlain
		case kindTracestate:
			if continued {
				f.kind = kindPlain
			}
		case kindForwarded:
			if trustForwarded {
				f.kind = kindPlain
			}
		}
	}
	out = r.appendPlain(out, b)
	out = append(out, "X-Forwarded-For: "...)
	if trustForwarded {
		for i := range r.fields {
			if f := &r.fields[i]; f.kind == kindForwardedFor && f.ValueFrom < f.ValueTo {
				out = append(out, f.Value(b)...)
				out = append(out, ", "...)
			}
		}
	}
	out = append(out, addr...)
	if !trustForwarded {
		out = append(out, "\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: "...)
		out = append(out, r.fields[r.host].Value(b)...)
	}
	return append(out, "\r\nVia: "+via+"\r\n"...)
}

// appendAnswer appends the head of the answer for the client, without the blank line. own has
// the fields of the transaction as lines; closeAfter says that the connection ends with it. A 204
// has neither length nor encoding, whatever the backend sent (RFC 9110 §8.6, RFC 9112 §6.1).
func (a *answer) appendAnswer(out, b, own []byte, f framing, closeAfter bool) []byte {
	out = append(out, "HTTP/1.1 "...)
	out = append(out, b[len("HTTP/1.1 "):a.End]...)
	framed := a.Status != 204
	for i := range a.fields {
		if f := &a.fields[i]; f.kind == kindLength && framed {
			f.kind = kindPlain
		}
	}
	out = a.appendPlain(out, b)
	out = append(out, own...)
	if framed && (a.chunked || f == framingClose) {
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	if closeAfter {
		out = append(out, "Connection: close\r\n"...)
	}
	return out
}
