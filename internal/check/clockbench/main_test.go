package clockbench

import (
	"encoding/gob"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
)

// asProcess has this test binary be a process of a run, which says what a test wants: its value.
const asProcess = "CLOCKBENCH_TEST_PROCESS"

func TestMain(m *testing.M) {
	if says := os.Getenv(asProcess); says != "" {
		pretend(says)
		return
	}
	goleak.VerifyTestMain(m)
}

// pretend is a process that made everything up.
func pretend(says string) {
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	switch says {
	case "refused":
		_ = out.Encode(message{Failed: "not_found: INTERVAL_MS is 0"})
	case "dead":
		_, _ = os.Stderr.WriteString("out of memory\n")
		os.Exit(3)
	case "garbage":
		_, _ = os.Stdout.WriteString(strings.Repeat("this is no gob\n", 100))
	default:
		_ = out.Encode(message{Ready: true})
	}
	for at := int64(1e9); ; at += 1e9 {
		var next order
		if in.Decode(&next) != nil {
			return
		}
		if next.Stop {
			continue
		}
		m := message{Done: &outcome{PerSecond: 1000}}
		m.Reads = []Read{{Lo: at, Hi: at + 10, Earliest: epoch + uint64(at), Latest: epoch + uint64(at) + 1000, Term: 1}}
		m.Operations = []Operation{{Oracle: true, Invocation: at + 20, Completion: at + 30, Timestamp: isotone.Timestamp{Time: epoch + uint64(at) + 900, Index: uint64(os.Getpid())}}}
		if says == "wrong" && at == 3e9 {
			m.Reads = append(m.Reads, Read{Lo: at, Hi: at + 10, Earliest: epoch + uint64(at) + 5000, Latest: epoch + uint64(at) + 6000, Term: 1})
		}
		if out.Encode(m) != nil {
			return
		}
	}
}
