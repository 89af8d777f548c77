package httpapi

import (
	"errors"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

func TestParseSessionQuery(t *testing.T) {
	const stamp = "00000000000000010000000000000002"
	at := isotone.Timestamp{Time: 1, Index: 2}
	token := isotone.Timestamp64(470780841959217570)
	for raw, want := range map[string]SessionQuery{
		"":                                     {Count: 1},
		"ttl=3s&other=x":                       {Count: 1, TTL: 3 * time.Second, Linger: 3 * time.Second},
		"ttl=1m&linger=0s":                     {Count: 1, TTL: time.Minute},
		"group=b&group=a%2fb&group=b":          {Count: 1, Groups: []string{"b", "a/b"}},
		"session=00000000000000ff":             {Count: 1, Session: 255},
		"wait=2h&value=a+b%26&epoch=7&label=l": {Count: 1, Wait: WaitMax, Value: "a b&", Epoch: 7, Label: "l"},
		"token=470780841959217570":             {Count: 1, Token: token},
		"token=" + token.Timestamp().String():  {Count: 1, Token: token},
		"after=0&prefix=shop/":                 {Count: 1, Prefix: "shop/"},
		"stamp=" + stamp + "&min=" + stamp + "&ticket=" + stamp: {Count: 1, Stamp: at, Min: at, Ticket: at},
		"n=4294967296&u64=0&ahead=1":                            {Count: 1 << 32, Ahead: true},
	} {
		if got, err := ParseSessionQuery(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"ttl", "ttl=3", "ttl=-1s", "ttl=1us", "linger=x", "epoch=0", "epoch=4294967296", "group=", "group=%ff", "session=ff", "session=0000000000000000", "session=00000000000000fg", "wait=1", "value=%ff",
		"ticket=1", "token=", "token=1", "token=x", "after=00", "stamp=", "min=g", "n=0", "u64=", "ahead=2", "ttl=1s&ttl=1s", "x=%", "ttl=1s;x=1",
	} {
		if got, err := ParseSessionQuery(raw); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
}

func TestNameIn(t *testing.T) {
	for path, want := range map[string]string{"/locks/a": "a", "/locks/shop/nightly": "shop/nightly", "/locks/shop%2Fnightly": "shop/nightly", "/locks//a": "/a", "/locks/%C3%A9": "é", "/locks/": "", "/locks/%ff": ""} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := NameIn(u, LocksPath, "lock"); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

// TestStampsOf_NamesTheLastOne of the form that was asked for.
func TestStampsOf_NamesTheLastOne(t *testing.T) {
	a := StampsOf("g", isotone.Range{First: isotone.Timestamp{Time: 1, Index: 9}, Count: 3}, false)
	if a.First != "00000000000000010000000000000009" || a.Last != "0000000000000001000000000000000b" || a.First64 != "" {
		t.Errorf("%+v", a)
	}
	first := isotone.Timestamp64(470780841959217570)
	a = StampsOf("g", isotone.Range{First: first.Timestamp(), Count: 3}, true)
	if a.First64 != "470780841959217570" || a.Last64 != "470780841959217572" || a.Last != (first+2).Timestamp().String() {
		t.Errorf("%+v", a)
	}
}
