package proxy

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// ofFastPath returns the key of a request on the fast path.
func (k *Key) ofFastPath(b []byte, r *request) (key uint64, ok bool) {
	switch {
	case k.header != "":
		for i := range r.fields {
			if f := &r.fields[i]; head.EqualFold(f.Name(b), k.header) {
				return balance.Hash(f.Value(b)), true
			}
		}
	case k.query != "":
		_, query, _ := bytes.Cut(r.Target(b), []byte("?"))
		if bytes.ContainsAny(query, "%+") {
			return k.ofQuery(string(query))
		}
		for len(query) > 0 {
			pair := query
			if i := bytes.IndexByte(query, '&'); i >= 0 {
				pair, query = query[:i], query[i+1:]
			} else {
				query = nil
			}
			name, value, _ := bytes.Cut(pair, []byte("="))
			if string(name) == k.query {
				return balance.Hash(value), true
			}
		}
	}
	return 0, false
}

// of returns the key of a request on the standard path: the same as on the fast path.
func (k *Key) of(r *http.Request) (key uint64, ok bool) {
	switch {
	case k.header == "host":
		return balance.Hash(r.Host), true
	case k.header != "":
		if values := r.Header.Values(k.header); len(values) > 0 {
			return balance.Hash(values[0]), true
		}
	case k.query != "":
		return k.ofQuery(r.URL.RawQuery)
	}
	return 0, false
}

func (k *Key) ofQuery(query string) (key uint64, ok bool) {
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if decoded(name) == k.query {
			return balance.Hash(decoded(value)), true
		}
	}
	return 0, false
}

// decoded returns s without percent-encoding, or s itself if that is malformed.
func decoded(s string) string {
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}
