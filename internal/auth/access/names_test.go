package access_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

func TestNames_AreThoseOfTheList(t *testing.T) {
	for keys, want := range map[string]string{
		``:                                     "shop shop/ shop/a shopping x jobs",
		`, "names": ["shop/"]`:                 "shop/ shop/a",
		`, "names": ["shop"]`:                  "shop",
		`, "names": ["shop*", "x"]`:            "shop shop/ shop/a shopping x",
		`, "names": ["*"]`:                     "shop shop/ shop/a shopping x jobs",
		`, "names": ["shop/a", "x", "nobody"]`: "shop/a x",
	} {
		c := open(t, access.Config{File: users(t, "", `{"users": {"u": {"roles": ["locks"], "secrets": ["HASH"]`+keys+`}}}`)})
		s := session(t, c, here)
		if err := prove(t, s, "u", secret); err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields("shop shop/ shop/a shopping x jobs") {
			err := s.RequireName(name)
			if may := strings.Contains(" "+want+" ", " "+name+" "); (err == nil) != may {
				t.Errorf("%s: %q: %v", keys, name, err)
			}
			if err != nil && (!errors.Is(err, isotone.ErrForbidden) || !strings.Contains(err.Error(), "user u may not use")) {
				t.Errorf("%s: %q: %v", keys, name, err)
			}
		}
		for prefix, may := range map[string]bool{
			"": keys == "" || strings.Contains(keys, `"*"`), "shop/": keys == "" || strings.Contains(keys, `shop/"`) || strings.Contains(keys, "*"), "shop/a": keys == "" || strings.Contains(keys, `shop/"`) || strings.Contains(keys, "*"),
		} {
			if (s.RequireNamesBelow(prefix) == nil) != may {
				t.Errorf("%s: all that begin with %q: %v", keys, prefix, !may)
			}
		}
	}
	s := session(t, open(t, access.Config{}), here)
	if s.RequireName("x", "y") != nil || s.RequireNamesBelow("") != nil {
		t.Error("without a list names are refused")
	}
}

// A key that says nothing is an error, since without it a user may use all names.
func TestNames_FaultsOfAListGiveNobodyMore(t *testing.T) {
	for _, value := range []string{`[]`, `null`, `"shop/"`, `[""]`, `[null]`, `[5]`, `{}`, `["` + strings.Repeat("a", 129) + `"]`, `["a"` + strings.Repeat(`, "a"`, 64) + `]`} {
		_, err := access.Summarize(users(t, "", `{"users": {"u": {"roles": ["locks"], "names": `+value+`}}}`))
		if err == nil || !strings.Contains(err.Error(), "names: want a list") {
			t.Errorf("%.40s: %v", value, err)
		}
	}
}
