package postgres_test

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/livestores/internal/loadtest"
	"github.com/isotone/isotone/adapters/livestores/postgres"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/live/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/isotone/isotone/internal/check/child.callAll"))
}

func open(t *testing.T, url string) store.Loader { return loadtest.Open(t, postgres.Open, url) }

func TestPostgres_DocumentsAndFailures(t *testing.T) {
	s := startPostgres(t)
	s.run("CREATE TABLE live (name text PRIMARY KEY, doc jsonb)", "CREATE TABLE other (doc jsonb)", "CREATE SEQUENCE counter",
		"CREATE ROLE app LOGIN PASSWORD 'p@ss'", "GRANT SELECT ON live TO app", "GRANT ALL ON counter TO app")
	url := "postgres://app:p%40ss@" + s.addr + "/postgres?sslmode=disable#"
	t.Run("appears, changes, vanishes", func(t *testing.T) {
		l := open(t, url+"SELECT doc FROM live WHERE name='votes' -- of tonight")
		loadtest.Wants(t, l, "", isotone.ErrNotFound)
		s.run(`INSERT INTO live VALUES ('votes', '{"a": [1, "ä"]}')`)
		loadtest.Wants(t, l, `{"a": [1, "ä"]}`, nil)
		loadtest.Wants(t, l, "", nil)
		s.run(`UPDATE live SET doc='2' WHERE name='votes'`)
		loadtest.Wants(t, l, "2", nil)
		s.run(`UPDATE live SET doc=NULL WHERE name='votes'`)
		loadtest.Wants(t, l, "", isotone.ErrNotFound)
		s.run(`DELETE FROM live`)
		loadtest.Wants(t, l, "", isotone.ErrNotFound)
	})
	for _, c := range []struct {
		query, want string
		code        error
	}{
		{"SELECT json_build_object('a'%2C 1)", `{"a" : 1}`, nil},
		{"WITH x AS (SELECT 'not JSON%25'::text AS y) SELECT y FROM x;", "not JSON%", nil}, // the node checks that
		{"VALUES (true)", "true", nil},
		{"SELECT repeat('1'%2C 1000)", strings.Repeat("1", 1000), nil},
		{"SELECT repeat('1'%2C 1001)", "", isotone.ErrInvalidArgument},
		{"SELECT repeat('ä'%2C 501)", "", isotone.ErrInvalidArgument},
		{"SELECT 1 UNION SELECT 2", "", isotone.ErrInvalidArgument},
		{"SELECT 1%2C 2", "", isotone.ErrInvalidArgument},
		{"SELECT $1::text", "", isotone.ErrInvalidArgument},
		{"SELECT 1; SELECT 2", "", isotone.ErrInvalidArgument},
		{"SELEC 1", "", isotone.ErrInvalidArgument},
		{"SELECT 1) AS x(y)%2C (SELECT 2", "", isotone.ErrInvalidArgument},
		{"SELECT nextval('counter')", "", isotone.ErrInvalidArgument},
		{"DELETE FROM live", "", isotone.ErrInvalidArgument},
		{"SELECT doc FROM missing", "", isotone.ErrNotFound},
		{"SELECT doc FROM other", "", isotone.ErrForbidden},
	} {
		t.Run(c.query, func(t *testing.T) {
			l := open(t, url+c.query)
			loadtest.Wants(t, l, c.want, c.code)
			if c.code != nil {
				loadtest.Wants(t, l, "", c.code) // the connection is kept
			}
		})
	}
	t.Run("credentials", func(t *testing.T) {
		for from, code := range map[string]error{
			"postgres://app:wrong@" + s.addr + "/postgres?sslmode=disable#SELECT 1":        isotone.ErrUnauthorized,
			"postgres://nobody:p%40ss@" + s.addr + "/postgres?sslmode=disable#SELECT 1":    isotone.ErrUnauthorized,
			"postgres://app:p%40ss@" + s.addr + "/missing?sslmode=disable#SELECT 1":        isotone.ErrNotFound,
			"postgres://app:p%40ss@" + s.addr + "/postgres?sslmode=verify-full#SELECT 1":   isotone.ErrInternal,
			"postgres://tester@/postgres?sslmode=disable&host=" + s.Dir() + "/no#SELECT 1": isotone.ErrInternal,
		} {
			_, _, err := loadtest.Load(t, open(t, from), time.Minute)
			if !errors.Is(err, code) || strings.Contains(err.Error(), "p@ss") || strings.Contains(err.Error(), "wrong") {
				t.Errorf("%s: %v, want %v", from, err, code)
			}
		}
		_, port, _ := net.SplitHostPort(s.addr)
		loadtest.Wants(t, open(t, "postgres://tester@/postgres?host="+s.Dir()+"&port="+port+"#SELECT 1"), "1", nil)
	})
	t.Run("slow query", func(t *testing.T) {
		l := open(t, url+"SELECT pg_sleep(100)::text")
		if _, _, err := loadtest.Load(t, l, time.Second); !errors.Is(err, isotone.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
	t.Run("killed and back", func(t *testing.T) {
		l := open(t, url+"SELECT 7")
		loadtest.Wants(t, l, "7", nil)
		s.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename='app'")
		loadtest.Wants(t, l, "", nil) // a new connection, and the old document
		s.Stop()
		loadtest.Wants(t, l, "", isotone.ErrInternal)
		s.start()
		loadtest.Wants(t, l, "", nil)
	})
}

func TestPostgres_NameThatLeadsToALocalAddressIsRefused(t *testing.T) {
	loadtest.FakeResolver(t)
	l := open(t, "postgres://app:hidden@db.example/shop?sslmode=disable#SELECT 1")
	_, _, err := loadtest.Load(t, l, time.Minute)
	var refused *live.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, isotone.ErrForbidden) || !strings.Contains(err.Error(), `"db.example" leads to 169.254.169.254:5432`) {
		t.Error(err)
	}
}

// TestPostgres_DoesNotBelieveALength has a server that announces a message of 2 GiB.
func TestPostgres_DoesNotBelieveALength(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(binary.BigEndian.AppendUint32([]byte("R"), 1<<31-1))
			served.Go(func() { _, _ = c.Read(make([]byte, 1000)); _, _ = c.Read(make([]byte, 1)); _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); served.Wait() })
	_, _, err = loadtest.Load(t, open(t, "postgres://app@"+ln.Addr().String()+"/shop?sslmode=disable#SELECT 1"), time.Minute)
	if !errors.Is(err, isotone.ErrInternal) || !strings.Contains(err.Error(), "announces 2147483643 bytes") {
		t.Error(err)
	}
}
