package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/live/store"
)

func TestParse_ReadsURLs(t *testing.T) {
	for text, want := range map[string]store.URL{
		"mongodb://db.example/shop#live/votes": {
			Scheme: "mongodb", Driver: "mongodb://db.example/shop", Hosts: []string{"db.example"}, Database: "shop", Collection: "live", ID: "votes",
			Shown: "mongodb://db.example/shop#live/votes",
		},
		"MongoDB://app:p%40ss@a:27017%2Cb%2c[::1]:7/shop?replicaSet=rs0&tls=true#live%2Fnow/a%2Fb/c": {
			Scheme: "mongodb", Driver: "mongodb://app:p%40ss@a:27017,b,[::1]:7/shop?replicaSet=rs0&tls=true", Hosts: []string{"a", "b", "::1"},
			Database: "shop", Collection: "live/now", ID: "a/b/c", Shown: "mongodb://a:27017,b,[::1]:7/shop#live%2Fnow/a%2Fb/c",
		},
		"mongodb+srv://app:x@cluster.example.net/shop#live/65f0c0ffee65f0c0ffee65f0": {
			Scheme: "mongodb+srv", Driver: "mongodb+srv://app:x@cluster.example.net/shop", Hosts: []string{"cluster.example.net"},
			Database: "shop", Collection: "live", ID: "65f0c0ffee65f0c0ffee65f0", Shown: "mongodb+srv://cluster.example.net/shop#live/65f0c0ffee65f0c0ffee65f0",
		},
		"postgresql://app@db:5433/shop?sslmode=verify-full#SELECT doc FROM live WHERE name='votes%2C%25'; ": {
			Scheme: "postgres", Driver: "postgres://app@db:5433/shop?sslmode=verify-full", Hosts: []string{"db"}, Database: "shop",
			Query: "SELECT doc FROM live WHERE name='votes,%'", Shown: "postgres://db:5433/shop",
		},
		"postgres:///shop?host=/run/postgresql#SELECT 1": {
			Scheme: "postgres", Driver: "postgres:///shop?host=/run/postgresql", Database: "shop", Query: "SELECT 1", Shown: "postgres:///shop",
		},
	} {
		got, err := store.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got.Scheme != want.Scheme || got.Driver != want.Driver || !slices.Equal(got.Hosts, want.Hosts) || got.Database != want.Database ||
			got.Collection != want.Collection || got.ID != want.ID || got.Query != want.Query || got.Shown != want.Shown {
			t.Errorf("%s:\n%+v, want\n%+v", text, *got, want)
		}
	}
}

func TestParse_SaysWhatIsWrongWithoutTheText(t *testing.T) {
	const secret = "hidden"
	for text, want := range map[string]string{
		"mysql://hidden@db/shop#a/b":                "want a URL of mongodb",
		"mongodb:hidden@db/shop#a/b":                "want a URL of mongodb",
		"mongodb:///shop#a/b":                       "want a host",
		"mongodb://app:hidden@db:0/shop#a/b":        "want a host",
		"mongodb://app:hidden@db:/shop#a/b":         "want a host",
		"mongodb://app:hidden@db:70000/shop#a/b":    "want a host",
		"mongodb://app:hidden@db%2C/shop#a/b":       "want a host",
		"mongodb://%2Frun%2Fhidden.sock/shop#a/b":   "want a host",
		"mongodb://app:hid@den@db/shop#a/b":         "want user and password escaped",
		"mongodb://app:hidden%4@db/shop#a/b":        "want user and password escaped",
		"mongodb://app:hidden@db#a/b":               "want the name of a database",
		"mongodb://app:hidden@db/a/b#a/b":           "want the name of a database",
		"mongodb://app:hidden@db/shop":              "want a collection and an _id",
		"mongodb://app:hidden@db/shop#live":         "want a collection and an _id",
		"mongodb://app:hidden@db/shop#live/":        "want a collection and an _id",
		"mongodb://app:hidden@db/shop?a=%zz#live/a": "want options",
		"mongodb+srv://app:hidden@db.x:27017/s#a/b": "want one name of SRV records",
		"mongodb+srv://app:hidden@a.x%2Cb.x/s#a/b":  "want one name of SRV records",
		"postgres://app:hidden@db/shop":             "want a query",
		"postgres://app:hidden@db/shop# ; ":         "want a query",
		"postgres://app:hidden@db/shop#a LIKE '%'":  "want a query",
		"postgres:///shop?host=db#SELECT 1":         "want a host",
	} {
		_, err := store.Parse(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %s…", text, err, want)
		}
	}
}

func TestRedact_LeavesOutUsersAndPasswords(t *testing.T) {
	u, err := store.Parse("postgres://app:p%40ss@db/shop?password=second&sslpassword=third&sslmode=require#SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	got := u.Redact(`user "app" p@ss p%40ss second third require db`)
	if want := `user "***" *** *** *** *** require db`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzParse checks that no text makes Parse panic, that what it shows has no password, and that the driver's
// URL has no comma that LIVE could not have had.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"mongodb://u:s3cr3t@h:1%2Ci/d?a=b#c/d", "mongodb+srv://u:s3cr3t@a.b.c/d#c/d", "postgres://u:s3cr3t@h/d?sslmode=require#SELECT 1%2C2",
		"postgres:///d?host=/x&password=s3cr3t#SELECT 1", "mongodb://[::1]:1/d#c/%zz",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := store.Parse(text)
		if err != nil {
			return
		}
		if u.Database == "" || (u.Query == "") == (u.ID == "") || !strings.HasPrefix(u.Driver, u.Scheme+"://") {
			t.Errorf("%q: %+v", text, *u)
		}
		authority, _, _ := strings.Cut(strings.TrimPrefix(u.Shown, u.Scheme+"://"), "/")
		if strings.Contains(authority, "@") {
			t.Errorf("%q shows %q", text, u.Shown)
		}
	})
}
