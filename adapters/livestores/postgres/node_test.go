package postgres_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/live/store"
)

// journal is a log, and the codes of loads.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// TestNode_ServesDocumentsOfPostgres has live documents as a node has them, with the real program.
func TestNode_ServesDocumentsOfPostgres(t *testing.T) {
	s := startPostgres(t)
	s.run("CREATE TABLE live (name text PRIMARY KEY, doc text)", "CREATE ROLE app LOGIN PASSWORD 'hidden'", "GRANT SELECT ON live TO app",
		`INSERT INTO live VALUES ('votes', '{"a":1}'), ('broken', '{"a":')`)
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, store.Program), "../cmd/isotone-live").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	from := "@" + s.addr + "/postgres?sslmode=disable#SELECT doc FROM live WHERE name="
	sources, err := live.Parse("votes=postgres://app:hidden" + from + "'votes',broken=postgres://app:hidden" + from + "'broken',wrong=postgres://app:hiddentoo" + from + "'votes'")
	if err != nil {
		t.Fatal(err)
	}
	var log journal
	var loads journal
	set, err := live.New(live.Config{
		Sources: sources, Interval: 200 * time.Millisecond, Timeout: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Observe: live.Observer{Loaded: func(name, code string, _ time.Duration) { _, _ = loads.Write([]byte(name + " " + code + "\n")) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	reads := func(want string) {
		t.Helper()
		await.Until(t, want, func() bool { d := set.Lookup("votes"); return d != nil && string(d.JSON()) == want })
	}
	reads(`{"a":1}`)
	s.run(`UPDATE live SET doc='{"a":2}' WHERE name='votes'`)
	reads(`{"a":2}`)
	for _, want := range []string{"votes ok", "votes unchanged", "broken invalid_argument", "wrong unauthorized"} {
		await.Until(t, want, func() bool { return strings.Contains(loads.String(), want) })
	}
	s.Stop()
	await.Until(t, "a failure", func() bool { return strings.Contains(loads.String(), "votes internal") })
	s.start()
	s.run(`UPDATE live SET doc='{"a":3}' WHERE name='votes'`)
	reads(`{"a":3}`)
	set.Close()
	for _, want := range []string{"document=votes source=postgres://" + s.addr + "/postgres", "live document is loaded again", "not valid JSON"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "hidden") {
		t.Errorf("a password in the log:\n%s", log.String())
	}
}
