package certname

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestRules_ZeroValueTakesSPIFFEIDsOfNodes(t *testing.T) {
	for name, want := range map[string]uint64{
		"spiffe://isotone/isotone/node/1":                          1,
		"spiffe://prod.example-1.com/isotone/node/42":              42,
		"spiffe://isotone/isotone/node/281474976710655":            1<<48 - 1,
		"spiffe://isotone/isotone/node/281474976710656":            0,
		"spiffe://isotone/isotone/node/0":                          0,
		"spiffe://isotone/isotone/node/01":                         0,
		"spiffe://isotone/isotone/node/":                           0,
		"spiffe://isotone/isotone/node/1/":                         0,
		"spiffe://isotone/isotone/node/1?x":                        0,
		"spiffe://isotone/isotone/node/%31":                        0,
		"spiffe://isotone/isotone/node/+1":                         0,
		"spiffe://isotone/isotone/client/1":                        0,
		"spiffe:///isotone/node/1":                                 0,
		"spiffe://a@b/isotone/node/1":                              0,
		"spiffe://a:1/isotone/node/1":                              0,
		"spiffe://A/isotone/node/1":                                0,
		"spiffe://a/x/isotone/node/1":                              0,
		"https://isotone/isotone/node/1":                           0,
		"isotone/isotone/node/1":                                   0,
		"1":                                                        0,
		"node1.example.com":                                        0,
		"spiffe://a/isotone/node/isotone/node/1":                   0,
		"spiffe://a/isotone/node/1/isotone/node/2":                 0,
		"spiffe://" + strings.Repeat("a", 255) + "/isotone/node/1": 1,
		"spiffe://" + strings.Repeat("a", 256) + "/isotone/node/1": 0,
	} {
		if id, ok := (Rules{}).Node(name); id != want || ok != (want != 0) {
			t.Errorf("%s: %d %v, want %d", name, id, ok, want)
		}
	}
}

func TestRules_NamesAndPatterns(t *testing.T) {
	r, faults := Parse("1=Node-A.example.com, 2=spiffe://prod/oracle/b ,n{id}.example.com,isotone-{ordinal}.svc,spiffe://prod/ns/x/{id}")
	if faults != nil {
		t.Fatal(faults)
	}
	for name, want := range map[string]uint64{
		"node-a.EXAMPLE.com": 1, "spiffe://prod/oracle/b": 2, "spiffe://prod/oracle/B": 0,
		"n7.example.com": 7, "N7.example.com": 7, "n07.example.com": 0, "n.example.com": 0, "n0.example.com": 0, "*.example.com": 0, "n*.example.com": 0,
		"n7.example.com.": 0, "xn7.example.com": 0, "n7.example.com.evil": 0,
		"isotone-0.svc": 1, "isotone-4.svc": 5, "isotone-281474976710655.svc": 0, "spiffe://prod/ns/x/3": 3, "spiffe://other/ns/x/3": 0,
		"spiffe://isotone/isotone/node/1": 0, // the rules replace the default one
	} {
		if id, ok := r.Node(name); id != want || ok != (want != 0) {
			t.Errorf("%s: %d %v, want %d", name, id, ok, want)
		}
	}
}

// One certificate must not be that of whichever node its holder likes to be.
func TestRules_NameOfTwoNodesIsOfNone(t *testing.T) {
	for _, text := range []string{"a{id},a{ordinal}", "1=a2,a{id}", "a{id},a1{id}"} {
		r, faults := Parse(text)
		if faults != nil {
			t.Fatal(text, faults)
		}
		for _, name := range []string{"a2", "a11"} {
			id, ok := r.Node(name)
			if text == "1=a2,a{id}" && name == "a11" || text == "a{id},a1{id}" && name == "a2" {
				if !ok {
					t.Errorf("%s: %s is nobody's", text, name)
				}
			} else if ok {
				t.Errorf("%s: %s is node %d", text, name, id)
			}
		}
	}
}

func TestParse_NamesEveryFault(t *testing.T) {
	for _, text := range []string{
		"node1.example.com", "0=a", "x=a", "1=", "=a", "1=*.example.com", "*.{id}", "1=a b", "1=a..b", "{id}{id}", "{id}{ordinal}", "1={id}",
		"1=a,2=a", "1=A,2=a", "a,", "spiffe://x", "spiffe:///{id}", "spiffe://x/{id}?a", "1=spiffe://x/y%2F", "1=http://x/y", "spiffe://{id}.X/y",
		strings.Repeat("a", 600) + "{id}", strings.Repeat("n{id},", 70) + "n{id}",
	} {
		if r, faults := Parse(text); faults == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
	if _, faults := Parse("a,1=b,c"); len(faults) != 2 || faults[0].Entry != "a" || faults[1].Entry != "c" {
		t.Error(faults)
	}
	if r, faults := Parse(" "); faults != nil || r.String() != "spiffe://TRUST-DOMAIN/isotone/node/{id}" {
		t.Error(r, faults)
	}
}

func TestRules_CertificateOfSeveralNames(t *testing.T) {
	u := func(s string) *url.URL {
		v, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	cert := &x509.Certificate{DNSNames: []string{"n3.x", "other"}, URIs: []*url.URL{Node("isotone", 2), u("spiffe://x/isotone/node/%31"), Client("isotone", "2")}}
	cert.Subject.CommonName = "n4.x"
	if got := (Rules{}).Nodes(cert); !slices.Equal(got, []uint64{2}) {
		t.Error(got)
	}
	r, _ := Parse("n{id}.x")
	if got := r.Nodes(cert); !slices.Equal(got, []uint64{3}) {
		t.Error(got)
	}
}

func TestValidClient(t *testing.T) {
	for name, want := range map[string]bool{"orders": true, "a.b-c_D9": true, "": false, "..": false, "a/b": false, "a b": false, strings.Repeat("a", 65): false} {
		if ValidClient(name) != want {
			t.Error(name)
		}
	}
}

// FuzzNode has names in certificates and rules of all kinds: a name stands for one node at most,
// and by the default rule only in one spelling.
func FuzzNode(f *testing.F) {
	f.Add("", "spiffe://isotone/isotone/node/1")
	f.Add("1=a.example,n{id}.example", "n7.example")
	f.Add("isotone-{ordinal}.svc,spiffe://x/y/{id}/z", "spiffe://x/y/3/z")
	f.Add("a{id},a1{id}", "a11")
	f.Fuzz(func(t *testing.T, text, name string) {
		r, faults := Parse(text)
		if faults != nil {
			return
		}
		id, ok := r.Node(name)
		if ok != (id >= 1 && id <= nodeIDMax) {
			t.Fatalf("%q %q: %d %v", text, name, id, ok)
		}
		if !ok {
			return
		}
		if strings.ContainsAny(name, "*%?#@ ,=") {
			t.Fatalf("%q %q: %d", text, name, id)
		}
		if u, err := url.Parse(name); strings.HasPrefix(name, scheme) && (err != nil || u.String() != name) {
			t.Fatalf("%q is not a URI in its usual form", name)
		}
		if r.text != "" {
			return
		}
		domain, _, _ := strings.Cut(strings.TrimPrefix(name, scheme), "/")
		if Node(domain, id).String() != name {
			t.Fatalf("%q is node %d", name, id)
		}
	})
}
