package access

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// aHash is a valid hash that costs nothing to make.
const aHash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"

// FuzzList has lists of users of all kinds. One is used as a whole or not at all, is within its
// bounds, and gives the same users again when it is written down.
func FuzzList(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{} {}`, `{"users": null}`, `{"users": {"a": null}}`, `{"users": {"a": {"roles": ["all"]}, "a": {"roles": []}}}`,
		`{"users": {"shop": {"roles": ["timestamps", "ids"], "secrets": ["` + aHash + `"], "limits": {"requests": 20000, "connections": 50}}, "prom": {"roles": ["metrics"]}}, "addressLimits": {"workers": 256}}`,
		`{"Users": {"a": {"Roles": ["none"], "ROLES": []}}}`, `{"users": {"a": {"limits": {"streams": 1, "streams": 2}}}}`, `{"users": {"a": {"roles": [[[["x"]]]]}}}`,
		`{"addressLimits": {"timestamps": 1e9, "workers": -0}}`, "{\"u\u017fers\": {\"\xff\": {}}}", `{"users": {"a\u0062": {"secrets": ["plain"]}, "ab": {}}}`,
		`{"users": {"a": {"timeline": "orders", "timelines": ["a/*", "b"]}, "b": {"timeline": ""}, "c": {"timelines": null}}}`, `{"users": {"a": {"timeline": "o"}, "b": {"Timelines": ["*"]}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		users, address, err := parseList(text)
		if err != nil {
			if users != nil || address != nil {
				t.Fatalf("%q: a part of it is used: %v", text, err)
			}
			return
		}
		again := list{Users: map[string]entry{}, AddressLimits: address}
		for name, u := range users {
			again.Users[name] = checkUser(t, name, u)
		}
		if len(users) > usersMax || address != nil && address.check() != nil {
			t.Fatalf("%d users, %+v", len(users), address)
		}
		// What was written in each name's own place has to be there: none replaces another one.
		if quoted := bytes.Count(text, []byte(`"`)); quoted < 2*len(users) {
			t.Fatalf("%d users of %q", len(users), text)
		}
		written, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		users2, address2, err := parseList(written)
		if err != nil || !reflect.DeepEqual(users, users2) || !reflect.DeepEqual(address, address2) {
			t.Fatalf("%q is written %q: %v", text, written, err)
		}
	})
}

// checkUser fails unless u is within the bounds, and returns it as it is written.
func checkUser(t *testing.T, name string, u *user) entry {
	t.Helper()
	if u.name != name || !ValidName(name) || u.roles&^All != 0 || len(u.secrets) > secretsMax || u.limits.check() != nil {
		t.Fatalf("%q: %+v", name, u)
	}
	e := entry{Roles: strings.Split(u.roles.String(), ","), Limits: u.limits}
	for i := range u.secrets {
		e.Secrets = append(e.Secrets, u.secrets[i].String())
	}
	if (e.isBound(t, u) || u.orders.only != nil) == u.orders.isOpen() || len(u.orders.only) > patternsMax {
		t.Fatalf("%q: %+v", name, u.orders)
	}
	return e
}

// isBound writes the orders of u, and reports whether one stands for the default order.
func (e *entry) isBound(t *testing.T, u *user) bool {
	t.Helper()
	var err error
	if u.orders.bound != "" {
		e.Timeline, err = json.Marshal(u.orders.bound)
	}
	if err == nil && u.orders.only != nil {
		e.Timelines, err = json.Marshal(u.orders.only)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e.Timeline != nil
}

// FuzzHash has hashes of all kinds. One that is accepted has a bounded cost, and is written in one
// way only; to read one allocates little, whatever it says.
func FuzzHash(f *testing.F) {
	for _, seed := range []string{
		aHash, "", "$argon2id$", strings.Repeat("$", 300), "$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
		"$argon2id$v=19$m=4294967295,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA", "$argon2id$v=19$m=262144,t=16,p=4$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
		"$argon2id$v=19$m= 64,t=1,p=1 . x$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA", "$argon2id$v=19$m=064,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
		"$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ\n$aGFzaGhhc2hoYXNoaGFzaA", "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHR$aGFzaGhhc2hoYXNoaGFzaA",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHash(text)
		if err != nil {
			if !reflect.DeepEqual(h, hash{}) {
				t.Fatalf("%q: a part of it is used: %+v", text, h)
			}
			if !strings.Contains(errHash.Error(), text) && strings.Contains(err.Error(), text) {
				t.Fatalf("the error has the text: %v", err)
			}
			return
		}
		if h.memory > hashMemoryKiBMax || h.memory < 8*uint32(h.threads) || h.passes-1 >= hashPassesMax || h.threads-1 >= hashThreadsMax {
			t.Fatalf("%q has a cost of %+v", text, h)
		}
		if got := h.String(); got != text || cap(h.salt) > 2*hashBytesMax || cap(h.sum) > 2*hashBytesMax {
			t.Fatalf("%q is read as %q", text, got)
		}
	})
}

// FuzzLimits has the limits of the list of users, and requests that count for them: no more is
// granted than the rates allow, and who is refused is told a time after which it is granted.
func FuzzLimits(f *testing.F) {
	f.Add([]byte(`{"requests": 50, "timestamps": 100000, "connections": 100, "streams": 16, "workers": 16}`), []byte("\x00\x00\x00\x01\xff\xff\xff\xff"))
	f.Add([]byte(`{"requests": 1000000000}`), bytes.Repeat([]byte{0, 1, 2}, 20))
	f.Add([]byte(`{"timestamps": 1}`), bytes.Repeat([]byte{255}, 24))
	f.Add([]byte(`{"requests": -1, "timestamps": 1e3, "streams": 99999999999999999999}`), []byte{})
	f.Fuzz(func(t *testing.T, text, asked []byte) {
		_, l, err := parseList([]byte(`{"addressLimits": ` + string(text) + `}`))
		if err != nil || l == nil {
			return
		}
		u, now, granted := newUsage(*l), time.Duration(0), float64(0)
		for ; len(asked) >= 4; asked = asked[4:] {
			now += time.Duration(binary.LittleEndian.Uint16(asked)) * time.Millisecond
			n := uint64(binary.LittleEndian.Uint16(asked[2:]))
			wait := u.take(now, 1, n)
			if wait < 0 {
				t.Fatalf("%+v: wait %v", l, wait)
			}
			if wait > 0 {
				if now += wait; l.Timestamps != 0 && l.Requests != 0 {
					continue // each of the two has a wait of its own
				}
				if more := u.take(now, 1, n); more > time.Microsecond {
					t.Fatalf("%+v: after the wait of %v there is another one of %v", l, wait, more)
				} else if more > 0 {
					continue
				}
			}
			granted++
			if most := float64(l.Requests) * (now.Seconds() + 1); l.Requests > 0 && granted > most*1.001+1 {
				t.Fatalf("%+v: %v requests in %v", l, granted, now)
			}
		}
	})
}

// FuzzParseAuthorization has values of the field Authorization. What is accepted can be a user's,
// and is the same when a client sends it in its usual form.
func FuzzParseAuthorization(f *testing.F) {
	for _, seed := range []string{"Bearer a~b", "Basic YTpi", "", "bearer", "Basic Og==", "Basic YTpi\r\n", "basic  YTpi ", "Bearer a~b~c", "Basic YTpiOmM=", "Basic YTpj", "Bearer " + strings.Repeat(" ", 2000) + "a~b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		c, ok := ParseAuthorization(value)
		if !ok {
			if c != (Credentials{}) {
				t.Fatalf("%q is refused and gives %+v", value, c)
			}
			return
		}
		if !ValidName(c.Name) || c.Secret == "" || len(c.Secret) > SecretMax || len(value) > authorizationMax {
			t.Fatalf("%q gives %+v", value, c)
		}
		if again, ok := ParseAuthorization("Basic " + base64.StdEncoding.EncodeToString([]byte(c.Name+":"+c.Secret))); !ok || again != c {
			t.Fatalf("%q gives %+v, by Basic %+v", value, c, again)
		}
		if again, ok := ParseAuthorization("Bearer " + c.Name + "~" + c.Secret); strings.Trim(c.Secret, " ") == c.Secret && (!ok || again != c) {
			t.Fatalf("%q gives %+v, by Bearer %+v", value, c, again)
		}
	})
}

// FuzzCertificateName has names in certificates of clients: one for a node is nobody's, and what
// is found can be the name of a user and is in the certificate.
func FuzzCertificateName(f *testing.F) {
	f.Add("alice", "spiffe://x.example/isotone/client/bob", "")
	f.Add("alice", "spiffe://x/isotone/node/1", "spiffe://x/isotone/client/bob")
	f.Add("", "https://x/isotone/client/bob", "spiffe://x/isotone/client/a%2fb")
	f.Add("0", "SPIFFE://x/isotone/client/bob#", "")
	f.Add("a b", "SPIFFE://x/isotone/client/%62ob?q#f", "spiffe://u@x:1/isotone/client/bob")
	f.Fuzz(func(t *testing.T, common, first, second string) {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: common}}
		var texts []string
		for _, text := range []string{first, second} {
			if u, err := url.Parse(text); err == nil && text != "" {
				cert.URIs, texts = append(cert.URIs, u), append(texts, text)
			}
		}
		name := CertificateName(cert)
		if name == "" {
			return
		}
		says := func(text string) bool {
			const scheme = "spiffe://" // url.Parse writes it in lower case
			if len(text) < len(scheme) || !strings.EqualFold(text[:len(scheme)], scheme) {
				return false
			}
			// An empty fragment is lost when a certificate is parsed.
			domain, path, _ := strings.Cut(strings.TrimSuffix(text[len(scheme):], "#"), "/")
			return !strings.ContainsAny(domain, "@%") && path == "isotone/client/"+name
		}
		isNode := func(text string) bool { return strings.HasPrefix(text, "spiffe://x/isotone/node/") }
		switch {
		case !ValidName(name) || len(texts) > 0 && isNode(texts[0]):
			t.Fatalf("%q %q is %q", common, texts, name)
		case slices.ContainsFunc(texts, says):
		case name != common || slices.ContainsFunc(texts, isNode):
			t.Fatalf("%q %q is %q, which no name says in its usual form", common, texts, name)
		}
	})
}

// FuzzOwe has reports of all kinds. None takes a user's rates further than oweMax, and what one node reports another one reads.
func FuzzOwe(f *testing.F) {
	for _, seed := range []string{"", "\x01u", "\x01u\x64\x05", "\x01u\x64\x05\x01u\x01\x00", "\xff" + strings.Repeat("u", 300), "\x01u\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, report []byte) {
		c := &Control{cfg: Config{Now: func() time.Duration { return time.Hour }}}
		u := &user{name: "u", limits: Limits{Requests: 3, Timestamps: RateMax}}
		u.usage = newUsage(u.limits)
		c.table.Store(&table{users: map[string]*user{"u": u}})
		c.Owe(report)
		for _, b := range []*Bucket{&u.usage.requests, &u.usage.timestamps} {
			if ahead := b.earned.Load() - int64(time.Hour); b.earned.Load() < 0 || ahead > int64(oweMax) {
				t.Fatalf("%q: %v are used up", report, time.Duration(ahead))
			}
		}
	})
}
