package server

import (
	"log/slog"
	"math"
	"strings"
	"testing"
)

func TestShareFiles_KeepsSomeForTheRest(t *testing.T) {
	for _, c := range []struct {
		wanted int
		thrift bool
		files  uint64
		want   connectionLimits
	}{
		{20000, true, 0, connectionLimits{20000, 4096}},
		{20000, true, 1 << 20, connectionLimits{20000, 4096}},
		{20000, true, math.MaxUint64, connectionLimits{20000, 4096}},
		{20000, false, 20256, connectionLimits{20000, 4096}},
		{20000, false, 20255, connectionLimits{19999, 4096}},
		{20000, true, 4096, connectionLimits{3072, 768}},
		{100, true, 4096, connectionLimits{100, 768}},
		{20000, true, 100, connectionLimits{60, 15}},
		{20000, true, 1, connectionLimits{1, 1}},
	} {
		got := shareFiles(c.wanted, c.thrift, c.files)
		if got != c.want {
			t.Errorf("%d connections, %d files: %+v, want %+v", c.wanted, c.files, got, c.want)
		}
	}
}

func TestLimitConnections_WarnsWithWhatToDo(t *testing.T) {
	var log strings.Builder
	l := slog.New(slog.NewTextHandler(&log, nil))
	if limitConnections(100, false, 1000, l); log.Len() > 0 {
		t.Errorf("enough files: %s", &log)
	}
	limitConnections(20000, false, 1000, l)
	for _, want := range []string{"level=WARN", "raise LimitNOFILE=", "MAX_CONNECTIONS=20000", "connections=750", "RLIMIT_NOFILE=1000"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in %s", want, &log)
		}
	}
}

func TestShareProxyFiles_KeepsOneForABackend(t *testing.T) {
	for _, c := range []struct {
		wanted, backends int
		files            uint64
		want             int
	}{
		{20000, 2048, 0, 20000},
		{20000, 2048, math.MaxUint64, 20000},
		{20000, 2048, 20000 + 2048 + filesReserved, 20000},
		{20000, 2048, 20000 + 2048 + filesReserved - 1, 19999},
		{20000, 40000, 40000 + filesReserved, 20000}, // each has a connection to a backend
		{20000, 40000, 40000 + filesReserved - 2, 19999},
		{20000, 2048, 1024, 384},
		{100, 2048, 1024, 100},
		{20000, 0, 1024, 768}, // in front of a cluster
		{20000, 2048, 1, 1},
	} {
		if got := shareProxyFiles(c.wanted, c.backends, c.files); got != c.want {
			t.Errorf("%d connections, %d of backends, %d files: %d, want %d", c.wanted, c.backends, c.files, got, c.want)
		}
	}
	var log strings.Builder
	l := slog.New(slog.NewTextHandler(&log, nil))
	if limitProxyConnections(384, 2048, 1024, l); log.Len() > 0 {
		t.Errorf("enough files: %s", &log)
	}
	limitProxyConnections(20000, 2048, 1024, l)
	for _, want := range []string{"level=WARN", "--max-connections", "raise LimitNOFILE=", "max_connections=20000", "connections=384", "RLIMIT_NOFILE=1024"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in %s", want, &log)
		}
	}
}

func TestLimitTCPConnections_LeavesFilesForPipes(t *testing.T) {
	for _, c := range []struct {
		wanted, pipes int
		files         uint64
		want          int
	}{
		{20000, 256, 0, 20000}, // unknown
		{20000, 256, 1 << 20, 20000},
		{20000, 64, 1024, 336}, // 1024-2*64, of which 224 are for the rest, and two each
		{300, 64, 1024, 300},
	} {
		if got := limitTCPConnections(c.wanted, c.pipes, c.files, slog.New(slog.DiscardHandler)); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestAdminServer_NoneHasNoAddress(t *testing.T) {
	none := (*adminServer)(nil)
	if none.close(); none.addr() != "" {
		t.Error("a port that is not served has an address")
	}
}
