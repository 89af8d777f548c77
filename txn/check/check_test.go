package check_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/txn/check"
)

// parse makes a history of one line for each transaction: its status (c, a or u), optionally
// [begin,end] and @commit, and operations as Op.String prints them: l=[1 2] l+3 r=4 r:=5.
func parse(t *testing.T, text string) (history []check.Txn) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(strings.NewReplacer("=[]", "=[ ]").Replace(line))
		if len(fields) == 0 {
			continue
		}
		txn := check.Txn{Name: fmt.Sprint("T", len(history)+1)}
		txn.Status = map[string]check.Status{"c": check.Committed, "a": check.Aborted, "u": check.Unknown}[fields[0]]
		rest := strings.Join(fields[1:], " ")
		for rest != "" {
			word, after, _ := strings.Cut(rest, " ")
			if strings.Contains(word, "=[") {
				word, after, _ = strings.Cut(rest, "]")
			}
			rest = strings.TrimSpace(after)
			parseWord(t, &txn, word)
		}
		history = append(history, txn)
	}
	return history
}

func parseWord(t *testing.T, txn *check.Txn, word string) {
	t.Helper()
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	op := check.Op{Key: word[:1]}
	switch {
	case word[0] == '[':
		begin, end, _ := strings.Cut(strings.Trim(word, "[]"), ",")
		txn.Begin, txn.End = number(begin), number(end)
		return
	case word[0] == '@':
		txn.Commit = uint64(number(word[1:]))
		return
	case strings.HasPrefix(word[1:], "=["):
		op.Kind = check.List
		for _, s := range strings.Fields(word[3:]) {
			op.List = append(op.List, number(s))
		}
	case word[1] == '+':
		op.Kind, op.Value = check.Append, number(word[2:])
	case strings.HasPrefix(word[1:], ":="):
		op.Kind, op.Value = check.Write, number(word[3:])
	default:
		op.Kind, op.Value = check.Read, number(word[2:])
	}
	txn.Ops = append(txn.Ops, op)
}

var histories = []struct {
	name, text string
	want       check.Name // "" for none
}{
	{"nothing", "", ""},
	{"lists in order", "c l=[] l+1\n c l=[1] l+2\n c l=[1 2]", ""},
	{"own writes are read", "c l=[] l+1 l=[1] l+2 l=[1 2]\n c l+3 l=[1 2 3]\n c l+4 m+1 m=[1]", ""},
	{"register in order", "c r=0 r:=1\n c r=1 r:=2 r=2\n c r=2", ""},
	{"blind writes of a register", "c r:=1\n c r:=2\n c r=1\n c r=2", ""},
	{"write skew", "c x=0 y=0 x:=1\n c x=0 y=0 y:=1", ""},
	{"write skew of lists", "c x=[] y=[] x+1\n c x=[] y=[] y+1\n c x=[1] y=[1]", ""},
	{"long fork is not a cycle with one snapshot each", "c x:=1\n c y:=1\n c x=1 y=0", ""},
	{"unknown that committed", "u l+1\n c l=[1]", ""},
	{"unknown that did not", "u l=[] l+1\n c l=[]\n c l=[] l+2\n c l=[2]", ""},
	{"aborted is not seen", "a l+1\n c l=[]", ""},
	{"unknown reads of an unknown that aborted count not", "u l+1\n u l=[1] m+1\n c l=[]", ""},

	{"no status", "x l+1", check.Malformed},
	{"written twice", "c l+1\n c l+1", check.Malformed},
	{"list and register", "c l+1\n c l:=2", check.Malformed},
	{"own append is missing", "c l+1 l=[]", check.Internal},
	{"list changes within a transaction", "c l+1\n c l=[] l=[1]", check.Internal},
	{"register changes within a transaction", "c r:=1\n c r=0 r=1", check.Internal},
	{"own write is missing", "c r:=1 r=0", check.Internal},
	{"never written", "c l=[1]", check.Garbage},
	{"register never written", "c r=1", check.Garbage},
	{"append twice", "c l+1\n c l=[1 1]", check.Garbage},
	{"read of an abort", "a l+1\n c l=[1]", check.G1a},
	{"register of an abort", "a r:=1\n c r=1", check.G1a},
	{"read of an abort below a commit", "a l+1\n c l+2\n c l=[1 2]", check.G1a},
	{"intermediate read", "c l+1 l+2\n c l=[1]\n c l=[1 2]", check.G1b},
	{"intermediate read of a register", "c r:=1 r:=2\n c r=1", check.G1b},
	{"own write from before", "c l=[1] l+1", check.G1b},
	{"lists disagree", "c l+1\n c l+2\n c l=[1 2]\n c l=[2 1]", check.Order},
	{"lists fork", "c l+1\n c l+2\n c l=[1]\n c l=[2]", check.Order},
	{"elements of a transaction in another order", "c l+1 l+2\n c l=[2 1] m+1\n c l+3\n c l=[2 1 3]", check.G1b},
	{"elements in another order below another", "c l+1 l+2\n c l+3\n c l=[2 1 3]", check.Order},
	{"an element is missing", "c l+1 l+2\n c l=[2]", check.Order},
	{"lost update of a register", "c r=0 r:=1\n c r=0 r:=2\n c r=2", check.LostUpdate},
	{"lost update of a list", "c l=[] l+1\n c l=[] l+2\n c l=[1 2]", check.LostUpdate},
	{"lost update by an unknown", "c r=0 r:=1\n u r=0 r:=2\n c r=2", check.LostUpdate},
	{"dirty writes", "c l+1 m+1\n c l+2 m+2\n c l=[1 2] m=[2 1]", check.G0},
	{"dirty writes of a transaction in parts", "c l+1 l+3\n c l+2\n c l=[1 2 3]", check.G0},
	{"circular information flow", "c l+1 r=1\n c r:=1 l=[1]", check.G1c},
	{"torn read", "c x:=1 y:=1\n c x=1 y=0\n c x=0 y=0 z:=1", ""},
	{"read skew of registers", "c x=0 y=0 x:=1 y:=1\n c x=1 y=0", check.GSingle},
	{"read skew of lists", "c x+1 y+1\n c x=[1] y=[]\n c x=[1] y=[1]", check.GSingle},
	{"read skew with an update", "c l+1\n c l=[1] r=0 m+1 \n c r=0 r:=1 l=[1] m=[]\n c r=1 m=[1]\n c m=[1] l=[1] r=0", ""},
	{"anti-dependency to an element that nobody read", "c x+1 y+1\n c x=[1] y=[]", check.GSingle},
	{"long fork", "c x=[] x+1\n c y=[] y+1\n c x=[1] y=[]\n c x=[] y=[1]", check.GNonadjacent},
	{"long fork of registers", "c x=0 x:=1\n c y=0 y:=1\n c x=1 y=0\n c x=0 y=1", check.GNonadjacent},
	{"blind writes with commit timestamps", "c @1 x:=1 y:=1\n c @2 x:=2 y:=2\n c x=2 y=1", check.GSingle},
	{"blind writes without", "c x:=1 y:=1\n c x:=2 y:=2\n c x=2 y=1", ""},
	{"update against the commit timestamps", "c @2 x=0 x:=1\n c @1 x=1 x:=2", check.G1c},

	{"stale read", "c [1,2] x+1\n c [3,4] x=[]\n c [5,6] x=[1]", check.RealTime},
	{"stale read of a register", "c [1,2] x=0 x:=1\n c [3,4] x=0", check.RealTime},
	{"concurrent is not stale", "c [1,3] x+1\n c [2,4] x=[]", ""},
	{"equal times are concurrent", "c [1,2] x+1\n c [2,4] x=[]", ""},
	{"an unknown end precedes nothing", "u [1,2] x+1\n c [3,4] x=[]\n c [5,6] x=[1]", ""},
	{"commits against real time", "c [1,2] x+1\n c [3,4] x+2\n c x=[2 1]", check.RealTime},
	{"stale by a third", "c [1,2] x+1\n c [3,4] y+1\n c x=[] y=[1]\n c x=[1]", check.RealTime},
	{"write skew in real time", "c [1,4] x=[] y=[] x+1\n c [2,3] x=[] y=[] y+1\n c [5,6] x=[1] y=[1]", ""},
}

func TestCheck_NamesTheAnomaly(t *testing.T) {
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			err := check.Check(parse(t, h.text))
			var a *check.Anomaly
			if h.want == "" && err != nil || h.want != "" && (!errors.As(err, &a) || a.Name != h.want) {
				t.Errorf("%q: %v, want %q", h.text, err, h.want)
			}
		})
	}
}

func TestCheck_ReportsTheCycle(t *testing.T) {
	err := check.Check(parse(t, "c x+1 y+1\n c x=[1] y=[]\n c x=[1] y=[1]"))
	var a *check.Anomaly
	if !errors.As(err, &a) || len(a.Txns) != 2 {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"G-single", "rw y T1", "wr x T2", "T2 committed: x=[1] y=[]"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}
