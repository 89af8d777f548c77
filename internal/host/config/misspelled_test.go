package config_test

import (
	"testing"

	"github.com/isotone/isotone/internal/host/config"
)

func TestMisspelled_NamesTheSettingThatWasMeant(t *testing.T) {
	for variable, want := range map[string]string{
		"PEER": "PEERS", "NODEID": "NODE_ID", "NODE_ID_": "NODE_ID", "node_id": "NODE_ID", "HTTPPORT": "HTTP_PORT", "HTTP_PORTS": "HTTP_PORT",
		"RAFT_ADDRESS": "RAFT_ADDR", "RAFTADDR": "RAFT_ADDR", "ADVERTISE_ADDRESS": "ADVERTISE_ADDR", "DATADIR": "DATA_DIR", "DATA_DIRS": "DATA_DIR",
		"ISOTONE_NODE_ID": "NODE_ID", "ISOTONE_PEERS": "PEERS", "JION": "JOIN", "JOINS": "JOIN", "READMODE": "READ_MODE", "ANONYMOUS_": "ANONYMOUS",
		"RTTMS": "RTT_MS", "REQUIRE_TSL": "REQUIRE_TLS", "METRIC_ADDR": "METRICS_ADDR",
	} {
		found := config.Misspelled([]string{"PATH=/bin", variable + "=1"})
		if len(found) != 1 || found[0] != (config.Misspelling{Variable: variable, Setting: want}) {
			t.Errorf("%s: %v, want %s", variable, found, want)
		}
	}
	if found := config.Misspelled([]string{"PEER=", "NODEID"}); len(found) > 0 {
		t.Errorf("empty variables: %v", found)
	}
	if got := (config.Misspelling{Variable: "PEER", Setting: "PEERS"}).String(); got != "PEER is set, and is no setting; did you mean PEERS?" {
		t.Error(got)
	}
}

// What shells, systemd, containers, Kubernetes and Go set is no mistake, nor are settings of commands.
func TestMisspelled_KnowsNothingAboutOthers(t *testing.T) {
	for _, name := range []string{
		"PATH", "HOME", "USER", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "PWD", "OLDPWD", "HOSTNAME", "PORT", "HOST", "NODE", "NODE_NAME", "NODE_IP", "NODE_ENV", "POD_IP", "POD_NAME",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "CI", "DEBUG", "PEERS", "JOIN", "LIVE", "LINES", "LOGNAME", "COLUMNS", "MAIL", "EDITOR", "PAGER", "TMPDIR", "NO_COLOR",
		"KUBERNETES_SERVICE_HOST", "KUBERNETES_PORT", "KUBERNETES_PORT_443_TCP", "ISOTONE_SERVICE_HOST", "ISOTONE_PORT", "ISOTONE_PORT_8080_TCP", "ISOTONE_PORT_8080_TCP_PORT", "ISOTONE_SERVICE_PORT_HTTP",
		"ISOTONE_CONFIG", "ISOTONE_USER", "ISOTONE_PASSWORD", "ISOTONE_PASSWORD_FILE", "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "STATE_DIRECTORY", "MAINPID",
		"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_RUNTIME_DIR", "DISPLAY", "SSH_TTY", "SUDO_USER", "_",
	} {
		if found := config.Misspelled([]string{name + "=1"}); len(found) > 0 {
			t.Errorf("%v", found)
		}
	}
}
