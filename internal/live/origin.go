package live

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// originsMax bounds the origins: each request with an Origin is compared with all.
const originsMax = 64

// ParseOrigins reads a setting of web origins with commas between them. Each is
// scheme://host or scheme://host:port, in lower case as browsers write it, without a
// path; or "*" alone. Empty means none. The error is [Faults], with every fault.
func ParseOrigins(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > settingBytesMax {
		return nil, Faults{{"the setting", "too long"}}
	}
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	if _, err := makeOrigins(list); err != nil {
		return nil, err
	}
	return list, nil
}

// origins says whose pages may read.
type origins struct {
	any  bool
	list []string
	also func(origin string) bool // nil: no others
}

// vary reports whether the answer depends on the origin.
func (o origins) vary() bool { return len(o.list) > 0 || o.also != nil }

func (o origins) has(origin string) bool {
	return slices.Contains(o.list, origin) || o.also != nil && o.also(origin)
}

func makeOrigins(list []string) (origins, error) {
	var faults Faults
	for i, text := range list {
		u, err := url.Parse(text)
		switch {
		case text == "*" && len(list) > 1:
			faults = append(faults, Fault{text, "want it alone"})
		case text == "*":
			return origins{any: true}, nil
		case err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != text || strings.ToLower(text) != text:
			faults = append(faults, Fault{text, "want scheme://host or scheme://host:port in lower case, or *"})
		case slices.Contains(list[:i], text):
			faults = append(faults, Fault{text, "want every origin once"})
		}
	}
	if len(list) > originsMax {
		faults = append(faults, Fault{"the setting", "too many origins"})
	}
	return origins{list: list}, faults.orNil()
}

// fields sets what lets the page that has sent r read the answer, if it may. Vary is
// for caches, which must not give one page the answer to another.
func (o origins) fields(header http.Header, r *http.Request) (allowed bool) {
	switch origin := r.Header.Get("Origin"); {
	case o.any:
		header["Access-Control-Allow-Origin"] = anyOrigin
	case !o.vary():
		return false
	case origin == "" || !o.has(origin):
		addVary(header)
		return false
	default:
		addVary(header)
		header.Set("Access-Control-Allow-Origin", origin)
	}
	header["Access-Control-Expose-Headers"] = exposedFields
	return true
}

var (
	anyOrigin     = []string{"*"}
	exposedFields = []string{exposed}
)

func addVary(header http.Header) {
	if !strings.Contains(header.Get("Vary"), "Origin") {
		header.Add("Vary", "Origin")
	}
}

// preflight answers OPTIONS. A page whose origin is not allowed sees that by what is
// missing.
func (s *Set) preflight(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Allow", methods)
	header.Set("Cache-Control", "no-store")
	if s.origins.fields(header, r) {
		header.Set("Access-Control-Allow-Methods", methods)
		header.Set("Access-Control-Allow-Headers", "If-None-Match, Last-Event-ID, Cache-Control")
		header.Set("Access-Control-Max-Age", "600")
	}
	w.WriteHeader(http.StatusNoContent)
}
