package live_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/live"
)

// TestDatabase_WithoutTheProgramSaysHowToInstallIt is a node without isotone-live: it runs, and its log has
// what to do.
func TestDatabase_WithoutTheProgramSaysHowToInstallIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var log lines
	var got codes
	s := open(t, live.Config{
		Sources: parse(t, "doc=mongodb://app:hidden@db.example%2Cdb2.example/shop?replicaSet=rs0#live/votes,sql=postgres://app:hidden@db/shop#SELECT 1%2C2"),
		Log:     log.logger(), Observe: live.Observer{Loaded: got.loaded},
	})
	for _, doc := range []string{"doc", "sql"} {
		await.Until(t, doc, func() bool { return got.count(doc+" not_found") > 1 })
	}
	text := log.String()
	if log.count("need the program isotone-live") != 2 || strings.Contains(text, "hidden") ||
		log.count(`source="mongodb://db.example,db2.example/shop#live/votes"`)+log.count("source=mongodb://db.example,db2.example/shop#live/votes") != 1 {
		t.Errorf("the log:\n%s", text)
	}
	if w := ask(s, "GET", "/live/doc"); w.Code != 503 || !strings.Contains(w.Body.String(), "not_found") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestDatabase_FaultsOfTheSetting(t *testing.T) {
	for text, want := range map[string]string{
		"doc=mongodb://app:hidden@db/shop":     `"doc": want a collection and an _id`,
		"doc=postgres://app:hidden@db/#SELECT": `"doc": want the name of a database`,
		"doc=mysql://app:hidden@db/shop":       `"doc": want a source: file:PATH, or a URL with redis, rediss, http, https, mongodb, mongodb+srv or postgres`,
	} {
		if _, err := live.Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
