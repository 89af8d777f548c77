package replica_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

const beginningNow = uint64(1_800_000_000_000_000_000)

func TestBeginning_IsAboveBackupClockFloorAndEarlierOnes(t *testing.T) {
	at := func(after time.Duration) uint64 { return beginningNow + uint64(after) }
	mark := func(reached, shown time.Duration) replica.Mark {
		return replica.Mark{Time: at(reached), At: at(shown)}
	}
	const margin, clients = 10 * time.Second, replica.ClientFloorAheadMax
	for name, tt := range map[string]struct {
		b    replica.Beginning
		want uint64
		err  string
	}{
		"the clock":                    {replica.Beginning{Backup: mark(-time.Hour, -time.Hour), Margin: margin}, at(margin + clients), ""},
		"the backup":                   {replica.Beginning{Backup: mark(time.Hour, 0), Margin: margin}, at(time.Hour + margin), ""},
		"the backup, later":            {replica.Beginning{Backup: mark(time.Hour, -time.Minute), Margin: margin}, at(time.Hour + time.Minute + margin), ""},
		"the floor, with the margin":   {replica.Beginning{Backup: mark(0, 0), Floor: at(time.Hour), Margin: margin}, at(time.Hour+margin) + 1, ""},
		"a floor that is reached":      {replica.Beginning{Backup: mark(0, 0), Floor: at(0), Margin: margin}, at(margin + clients), ""},
		"an earlier one":               {replica.Beginning{Backup: mark(0, 0), Earlier: []replica.Mark{mark(time.Hour, -time.Minute)}, Margin: margin}, at(time.Hour + time.Minute + margin), ""},
		"what is prepared":             {replica.Beginning{Backup: mark(0, 0), Prepared: at(time.Hour), Margin: margin}, at(time.Hour), ""},
		"no margin":                    {replica.Beginning{Backup: mark(0, 0)}, at(clients), ""},
		"no margin above a held time":  {replica.Beginning{Backup: mark(time.Hour, 0), Force: true}, 0, "--margin of 1s or more"},
		"an old floor":                 {replica.Beginning{Backup: mark(-time.Hour, -time.Hour), Floor: 5, Margin: margin}, 0, "correct --floor"},
		"an old floor, forced":         {replica.Beginning{Backup: mark(-time.Hour, -time.Hour), Floor: 5, Margin: margin, Force: true}, at(margin + clients), ""},
		"a floor of days":              {replica.Beginning{Backup: mark(0, 0), Floor: at(48 * time.Hour), Margin: margin}, 0, "--force"},
		"a floor of days, forced":      {replica.Beginning{Backup: mark(0, 0), Floor: at(48 * time.Hour), Margin: margin, Force: true}, at(48*time.Hour+margin) + 1, ""},
		"a backup of days ahead":       {replica.Beginning{Backup: mark(48*time.Hour, 0), Margin: margin}, 0, "is the clock right"},
		"the clock is behind":          {replica.Beginning{Backup: mark(0, time.Minute), Margin: margin}, 0, "set the clock"},
		"later than any floor":         {replica.Beginning{Backup: mark(0, 0), Floor: oracle.FloorMax, Margin: margin, Force: true}, 0, "even with --force"},
		"a backup of later than that":  {replica.Beginning{Backup: replica.Mark{Time: oracle.FloorMax + 1, At: at(0)}, Margin: margin, Force: true}, oracle.FloorMax + 1 + uint64(margin), ""},
		"a note of later":              {replica.Beginning{Backup: mark(-time.Hour, -time.Hour), Earlier: []replica.Mark{mark(2*time.Hour, time.Hour)}, Margin: margin}, 0, "set the clock"},
		"the end of time":              {replica.Beginning{Backup: replica.Mark{Time: math.MaxInt64 - 2, At: at(0)}, Margin: time.Second, Force: true}, 0, "2262"},
		"a floor at the end of time":   {replica.Beginning{Backup: mark(0, 0), Floor: math.MaxUint64, Margin: time.Second, Force: true}, 0, "2262"},
		"an earlier one at the end":    {replica.Beginning{Backup: mark(0, 0), Earlier: []replica.Mark{{Time: math.MaxUint64}}, Margin: time.Second, Force: true}, 0, "2262"},
		"a prepared one at the end":    {replica.Beginning{Backup: mark(0, 0), Prepared: math.MaxUint64, Margin: time.Second, Force: true}, 0, "2262"},
		"a clock at the end of time":   {replica.Beginning{Backup: mark(0, 0), Now: math.MaxUint64, Force: true}, 0, "2262"},
		"a backup of the distant past": {replica.Beginning{Backup: replica.Mark{Time: 1, At: math.MaxInt64 - 2}, Force: true}, at(clients), ""},
	} {
		if tt.b.Now == 0 {
			tt.b.Now = beginningNow
		}
		got, err := tt.b.Time()
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %d, %v; want %d, %q", name, int64(got-beginningNow), err, int64(tt.want-beginningNow), tt.err)
		}
	}
}

// beginningHarms are the bugs in where a restored cluster begins.
var beginningHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.CarryNothing: func(t *testing.T) bool {
		return goesBack(t, replica.Beginning{Backup: replica.Mark{Time: uint64(2 * time.Hour), At: uint64(time.Hour)}})
	},
	mutant.FloorWithoutMargin: func(t *testing.T) bool {
		return goesBack(t, replica.Beginning{Backup: replica.Mark{Time: uint64(time.Hour), At: uint64(time.Hour)}, Floor: uint64(2 * time.Hour)})
	},
}

func TestBeginning_NoHarmIsDone(t *testing.T) { wantNoHarm(t, beginningHarms) }

// goesBack restores a cluster twice, the second time with the beginning of the first as floor if there was a floor, and
// reports whether the second one begins below what the first one has issued.
func goesBack(t *testing.T, b replica.Beginning) bool {
	b.Margin = 10 * time.Second
	var issued uint64
	mono := time.Hour // what the clock of a test cluster shows at first
	for range 3 {
		b.Now = uint64(mono)
		begin, err := b.Time()
		if err != nil {
			t.Fatal(err)
		}
		if begin <= issued {
			return true
		}
		s := seed(0)
		s.Floor, s.State.Ceiling = begin, b.Backup.Time
		c := unformed(t, 3, func(cfg *replica.Config) { cfg.Seed = s })
		c.mono = mono
		c.greet()
		issued = useUp(c, b.Floor == 0)
		mono = c.mono
		if b.Floor != 0 {
			b.Floor = begin
		}
	}
	return false
}

// useUp runs a cluster for 40 s, with clients that ask for all 64-bit timestamps that there are or for others,
// through two changes of leader, and returns its ceiling.
func useUp(c *cluster, u64 bool) (ceiling uint64) {
	for range 3 {
		l := c.leader()
		for range 20 {
			if !u64 {
				c.must(l)
				c.tick(5)
				continue
			}
			for range 30 {
				c.ask64(l, isotone.ReadQuorum, 100*isotone.Range64CountMax) // 100 ms of time
			}
			c.tick(67)
		}
		c.turn(l, &replica.Input{Transfer: true})
		c.tick(20)
	}
	for _, n := range c.running() {
		ceiling = max(ceiling, n.Status().Ceiling)
	}
	return ceiling
}

// TestBeginning_NeverGoesBack: a chain of clusters, each restored from any earlier backup, with the note of the
// restoration before. Each gains up to what its lead allows, as in headroom.go.
func TestBeginning_NeverGoesBack(t *testing.T) {
	for s := range uint64(2000) {
		rng := rand.New(rand.NewPCG(s, 77))
		now, issued := beginningNow, beginningNow
		lead := rng.Uint64N(uint64(2 * time.Hour)) // of the first cluster
		var backups, notes []replica.Mark
		pass := func() {
			d := rng.Uint64N(uint64(time.Duration(1 << rng.IntN(42))))
			now += d
			issued = max(issued, now+uint64(rng.Int64N(int64(replica.ClientFloorAheadMax))))
			if most := now + lead; rng.IntN(2) == 0 {
				issued = max(issued, most-min(most, rng.Uint64N(2)))
			}
			lead = min(lead, issued-min(issued, now)+uint64(400*time.Millisecond))
		}
		for range 6 {
			pass()
			backups, notes = append(backups, replica.Mark{Time: issued, At: now}), append(notes, replica.Mark{})
			pass()
			i := rng.IntN(len(backups))
			b := replica.Beginning{Backup: backups[i], Earlier: notes[i : i+1], Now: now, Margin: time.Second + time.Duration(rng.Int64N(int64(time.Minute))), Force: true}
			if i < len(backups)-1 && notes[i] == (replica.Mark{}) {
				b.Floor = issued // the operator has to know
			}
			begin, err := b.Time()
			if err != nil {
				t.Fatalf("seed %d: %v", s, err)
			}
			if begin <= issued {
				t.Fatalf("seed %d: begins at %d, and %d was issued", s, begin, issued)
			}
			// What another node of the restored cluster notes is another matter; one note for each backup is enough here.
			for j := range notes {
				notes[j] = replica.Mark{Time: begin, At: now}
			}
			issued, lead = begin, begin-now
		}
	}
}

func FuzzBeginning(f *testing.F) {
	f.Add(beginningNow, beginningNow, uint64(0), uint64(0), uint64(0), beginningNow, int64(10*time.Second), uint64(0), false)
	f.Fuzz(func(t *testing.T, ceiling, taken, began, when, prepared, now uint64, margin int64, floor uint64, force bool) {
		b := replica.Beginning{
			Backup: replica.Mark{Time: ceiling, At: taken}, Earlier: []replica.Mark{{Time: began, At: when}}, Prepared: prepared,
			Now: now, Margin: time.Duration(margin), Floor: floor, Force: force,
		}
		begin, err := b.Time()
		if err != nil {
			return
		}
		if begin < max(ceiling, began, prepared, now) || floor != 0 && begin <= floor || begin >= oracle.CeilingMax-1 {
			t.Errorf("%+v begins at %d", b, begin)
		}
	})
}
