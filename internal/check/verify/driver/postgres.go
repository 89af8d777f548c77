package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/pgserver"
)

// postgresSystem is nextval of a sequence, which begins at 1. A second node is an asynchronous standby of the first.
type postgresSystem struct {
	conns    *conns
	failover time.Duration // 0: never
	primary  atomic.Int64  // when the first node last answered, by Now
}

var postgresOptions = map[string]string{
	"synchronous_commit": "on (the default) or off: whether the primary's disk has the state of the sequence before an answer",
	"failover": "for how many seconds the first node does not answer before the second is promoted. Once that is so, the first is not " +
		"started again. It may have lost what the primary did not send in time, and a primary that was only paused goes on; without it, " +
		"nobody promotes it",
}

func (*postgresSystem) Hello(map[string]string) (Hello, error) {
	return Hello{
		System: "postgres", Version: version(`PostgreSQL\) ([0-9.]+)`, filepath.Join(pgserver.Find(), "postgres"), "--version"),
		Promises: "real-time", NodesMax: 2, Options: postgresOptions,
	}, nil
}

// postgresPrepare makes the data directory of the first node, and one of a standby.
const postgresPrepare = `set -e
bin=$1 data=$2
"$bin/initdb" -D "$data" -U verify -A trust -E UTF8 --locale=C --no-sync
printf 'host all all all trust\nhost replication all all trust\n' >>"$data/pg_hba.conf"
echo 'CREATE SEQUENCE verify' | "$bin/postgres" --single -D "$data" postgres
shift 2
for standby; do
  cp -a "$data" "$standby"
  touch "$standby/standby.signal"
done`

// postgresFenced starts a server unless a file says that another one has taken its place.
const postgresFenced = `while [ -e "$0" ]; do sleep 1; done; exec "$@"`

func (*postgresSystem) Plan(where PlanRequest, options map[string]string) (p Plan, err error) {
	commit, err := choice(options, "synchronous_commit", "on", "off")
	if err != nil {
		return p, err
	}
	bin := pgserver.Find()
	if bin == "" {
		return p, Errorf(Invalid, "there is no initdb in PATH or in /usr/lib/postgresql (Debian: postgresql)")
	}
	var user []string
	if os.Getuid() == 0 {
		// It refuses to run as root, but not as nobody in a user namespace, whose files are those of root.
		user = []string{"unshare", "--user", "--map-user=65534", "--map-group=65534"}
		if _, err := exec.LookPath(user[0]); err != nil {
			return p, Errorf(Invalid, "postgres does not run as root: %v (Debian: util-linux)", err)
		}
	}
	prepare := append(user, "sh", "-c", postgresPrepare, "sh", bin)
	promoted := filepath.Join(where.Dir, "promoted")
	for i, spot := range where.Nodes {
		data := filepath.Join(where.Dir, fmt.Sprintf("postgres%d", i))
		prepare = append(prepare, data)
		var start []string
		if i == 0 {
			start = []string{"sh", "-c", postgresFenced, promoted}
		}
		start = append(append(start, user...), filepath.Join(bin, "postgres"), "-D", data)
		for _, setting := range []string{
			"listen_addresses=" + spot.Host, "port=" + strconv.Itoa(spot.Ports[0]), "unix_socket_directories=", "max_connections=500",
			"synchronous_commit=" + commit, fmt.Sprintf("primary_conninfo=host=%s port=%d user=verify", where.Nodes[0].Host, where.Nodes[0].Ports[0]),
			"recovery_end_command=touch '" + promoted + "'",
		} {
			start = append(start, "-c", setting)
		}
		p.Nodes = append(p.Nodes, NodeCommand{Command: Command{Command: start}, Address: spot.address(0)})
	}
	p.Prepare = []Command{{Command: prepare}}
	return p, nil
}

func (s *postgresSystem) Connect(addresses []string, options map[string]string) error {
	if seconds := options["failover"]; seconds != "" {
		n, err := strconv.ParseFloat(seconds, 64)
		if err != nil || n <= 0 || n > 3600 {
			return Errorf(Invalid, "option failover = %q: want seconds above 0", seconds)
		}
		s.failover = time.Duration(n * float64(time.Second))
	}
	s.conns = newConns(addresses, greetPostgres)
	s.primary.Store(Now())
	return nil
}

func (s *postgresSystem) Ready(node int, deadline time.Time) error {
	_, err := s.query(node, deadline, "SELECT 1")
	return err
}

func (s *postgresSystem) Ask(node int, _ uint64, deadline time.Time) (n isotone.Timestamp, err error) {
	text, err := s.query(node, deadline, "SELECT nextval('verify')")
	if err == nil {
		return ParseNumber(text)
	}
	if errors.Is(err, errReadOnly) {
		s.promote(node, deadline)
	}
	return n, err
}

// promote makes a standby the primary, unless the first node answers or was asked not long ago.
func (s *postgresSystem) promote(node int, deadline time.Time) {
	if s.failover == 0 || time.Duration(Now()-s.primary.Load()) < s.failover {
		return
	}
	if _, err := s.query(0, deadline, "SELECT 1"); err != nil {
		_, _ = s.query(node, deadline, "SELECT pg_promote(false)") // the next call tells
	}
}

func (s *postgresSystem) query(node int, deadline time.Time, text string) (value string, err error) {
	err = s.conns.call(node, deadline, func(c *conn) error {
		value, err = c.query(text)
		return err
	})
	if err == nil && node == 0 {
		s.primary.Store(Now())
	}
	return value, err
}

func (s *postgresSystem) Close() { s.conns.close() }
