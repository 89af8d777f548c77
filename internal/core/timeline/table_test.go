package timeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/timeline"
)

func create(names ...string) (c timeline.Command) {
	c.Kind = timeline.KindCreate
	for _, name := range names {
		c.Creations = append(c.Creations, timeline.Creation{Name: name})
	}
	return c
}

func grantOf(group string, member, replaces uint64) timeline.Command {
	return timeline.Command{Kind: timeline.KindGrant, Target: 1000, Grants: []timeline.Grant{{Group: group, Member: member, Session: member, Replaces: replaces}}}
}

// history applies commands from index 1 on, and returns the outcomes of the last one.
func history(commands ...timeline.Command) (table timeline.Table, outcomes []timeline.Refusal) {
	for i, c := range commands {
		outcomes = apply(&table, uint64(i+1), c)
	}
	return table, outcomes
}

// refusals are commands, and what the last one is answered.
var refusals = []struct {
	name     string
	want     timeline.Refusal
	commands []timeline.Command
}{
	{"created twice", timeline.Exists, []timeline.Command{create("a"), create("a")}},
	{"created in no group", timeline.NoGroup, []timeline.Command{{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "a", Group: "eu"}}}}},
	{"created in no group of slots", timeline.NoGroup, []timeline.Command{{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "a", Group: "h256"}}}}},
	{"created above all times", timeline.TooLate, []timeline.Command{{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "a", Above: timeline.CeilingMax - 1}}}}},
	{"delete nothing", timeline.NotFound, []timeline.Command{{Kind: timeline.KindDelete, Name: "a"}}},
	{"delete late", timeline.NotFound, []timeline.Command{create("a"), {Kind: timeline.KindDelete, Name: "a"}, create("a"), {Kind: timeline.KindDelete, Name: "a", ID: 1}}},
	{"delete by its ID", timeline.Done, []timeline.Command{create("a"), {Kind: timeline.KindDelete, Name: "a", ID: 1}}},
	{"move to no group", timeline.NoGroup, []timeline.Command{create("a"), {Kind: timeline.KindMove, Name: "a", Group: "eu"}}},
	{"floor above all times", timeline.TooLate, []timeline.Command{create("a"), {Kind: timeline.KindFloor, Name: "a", Time: timeline.CeilingMax - 1}}},
	{"floor of a sealed one", timeline.Sealed, []timeline.Command{create("a"), {Kind: timeline.KindSeal, Name: "a"}, {Kind: timeline.KindFloor, Name: "a", Time: 1}}},
	{"a sealed one is deleted", timeline.Done, []timeline.Command{create("a"), {Kind: timeline.KindSeal, Name: "a"}, {Kind: timeline.KindDelete, Name: "a"}}},
	{"granted", timeline.Done, []timeline.Command{grantOf("h000", 1, 0)}},
	{"granted late", timeline.Superseded, []timeline.Command{grantOf("h000", 1, 0), grantOf("h000", 2, 0)}},
	{"granted again", timeline.Done, []timeline.Command{grantOf("h000", 1, 0), grantOf("h000", 2, 1)}},
	{"granted to no member", timeline.NoMember, []timeline.Command{grantOf("h000", 9, 0)}},
	{"no group granted", timeline.NoGroup, []timeline.Command{grantOf("eu", 1, 0)}},
	{"granted a group that was made again", timeline.Superseded, []timeline.Command{
		{Kind: timeline.KindMake, Group: "eu"}, {Kind: timeline.KindDrop, Group: "eu"}, {Kind: timeline.KindMake, Group: "eu"}, grantOf("eu", 1, 1),
	}},
	{"drop a group of slots", timeline.Fixed, []timeline.Command{{Kind: timeline.KindDrop, Group: "h007"}}},
	{"drop nothing", timeline.NoGroup, []timeline.Command{{Kind: timeline.KindDrop, Group: "eu"}}},
	{"drop a group with timelines", timeline.NotEmpty, []timeline.Command{
		{Kind: timeline.KindMake, Group: "eu"}, {Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "a", Group: "eu"}}}, {Kind: timeline.KindDrop, Group: "eu"},
	}},
	{"lease without an owner", timeline.Done, []timeline.Command{{Kind: timeline.KindLeaseOn, Group: "h000"}}},
	{"lease of no group", timeline.NoGroup, []timeline.Command{{Kind: timeline.KindLeaseOn, Group: "eu"}}},
	{"lease again while it is ending", timeline.Superseded, leased(endOf("h000", 4), timeline.Command{Kind: timeline.KindLeaseOn, Group: "h000"})},
	{"the end of another lease", timeline.Superseded, leased(timeline.Command{Kind: timeline.KindLeaseEnd, Group: "h000", Lease: 3})},
	{"the end of no lease", timeline.Done, []timeline.Command{grantOf("h000", 1, 0), {Kind: timeline.KindLeaseEnd, Group: "h000"}}},
	{"the end of a lease", timeline.Done, leased(endOf("h000", 4))},
	{"a lease is off that is not ending", timeline.Superseded, leased(offOf("h000", 4))},
	{"another lease is off", timeline.Superseded, leased(endOf("h000", 4), offOf("h000", 3))},
	{"a lease is off", timeline.Done, leased(endOf("h000", 4), offOf("h000", 4))},
	{"a lease is off after another grant", timeline.Done, leased(endOf("h000", 4), grantOf("h000", 2, 3), offOf("h000", 4))},
	{"moved while a lease is ending", timeline.Leased, leased(endOf("h000", 4), timeline.Command{Kind: timeline.KindMove, Name: "a", Group: "h001"})},
	{"moved after a lease", timeline.Done, leased(endOf("h000", 4), offOf("h000", 4), timeline.Command{Kind: timeline.KindMove, Name: "a", Group: "h001"})},
	{"moved under a lease", timeline.Leased, leased(timeline.Command{Kind: timeline.KindMove, Name: "a", Group: "h001"})},
	{"deleted under a lease", timeline.Leased, leased(timeline.Command{Kind: timeline.KindDelete, Name: "a"})},
	{"sealed under a lease", timeline.Leased, leased(timeline.Command{Kind: timeline.KindSeal, Name: "a"})},
	{"granted under a lease", timeline.Done, leased(grantOf("h000", 2, 3))},
}

func endOf(group string, lease uint64) timeline.Command {
	return timeline.Command{Kind: timeline.KindLeaseEnd, Group: group, Lease: lease}
}

func offOf(group string, lease uint64) timeline.Command {
	return timeline.Command{Kind: timeline.KindLeaseOff, Group: group, Lease: lease}
}

// leased returns commands after which timeline a is in a group whose owner may answer by a lease, since entry 4, and others.
func leased(then ...timeline.Command) []timeline.Command {
	return append([]timeline.Command{
		create("b"), {Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "a", Group: "h000"}}},
		grantOf("h000", 1, 0), {Kind: timeline.KindLeaseOn, Group: "h000"},
	}, then...)
}

// wrongRefusal returns the first rule that does not hold.
func wrongRefusal() error {
	for _, r := range refusals {
		if _, outcomes := history(r.commands...); !slices.Equal(outcomes, []timeline.Refusal{r.want}) {
			return fmt.Errorf("%s: %v, want %v", r.name, outcomes, r.want)
		}
	}
	return nil
}

// wrongWait returns the first state in which an owner waits for a lease of an earlier one that it need not, or the other way round.
func wrongWait() error {
	for name, c := range map[string]struct {
		want     bool
		commands []timeline.Command
	}{
		"in the tenure in which the lease began": {false, nil},
		"in the next one":                        {true, []timeline.Command{grantOf("h000", 2, 3)}},
		"while the lease is ending":              {true, []timeline.Command{grantOf("h000", 2, 3), endOf("h000", 4)}},
		"after the lease":                        {false, []timeline.Command{endOf("h000", 4), offOf("h000", 4), grantOf("h000", 2, 3)}},
	} {
		table, _ := history(leased(c.commands...)...)
		if g, _ := table.Group("h000"); g.WaitsForLease() != c.want {
			return fmt.Errorf("%s: %v", name, g.WaitsForLease())
		}
		if !c.want {
			continue
		}
		restored := table.Restored(0)
		apply(&restored, 2, grantOf("h000", 1, 0))
		if g, _ := restored.Group("h000"); !g.WaitsForLease() {
			return fmt.Errorf("%s, then restored: the first owner does not wait", name)
		}
	}
	return nil
}

func TestTable_OwnersWaitForTheLeasesOfEarlierOnes(t *testing.T) {
	if err := wrongWait(); err != nil {
		t.Error(err)
	}
}

func TestTable_RefusesWhatItMust(t *testing.T) {
	if err := wrongRefusal(); err != nil {
		t.Error(err)
	}
}

func TestTable_HasBounds(t *testing.T) {
	for len := timeline.TimelinesMax - 1; len <= timeline.TimelinesMax; len++ {
		table, _ := history(many(len)...)
		want := timeline.Done
		if len == timeline.TimelinesMax {
			want = timeline.Full
		}
		if outcomes := apply(&table, 9999, create("one-more")); outcomes[0] != want {
			t.Errorf("one more than %d timelines: %v", len, outcomes[0])
		}
	}
	var table timeline.Table
	for i := range timeline.GroupsMax - timeline.SlotGroups + 1 {
		want := timeline.Done
		if i == timeline.GroupsMax-timeline.SlotGroups {
			want = timeline.Full
		}
		if got := apply(&table, uint64(i+1), timeline.Command{Kind: timeline.KindMake, Group: fmt.Sprint("g", i)}); got[0] != want {
			t.Errorf("group %d: %v, want %v", i, got[0], want)
		}
	}
}

// many returns commands that create so many timelines.
func many(count int) (commands []timeline.Command) {
	for from := 0; from < count; from += timeline.CreationsMax {
		var batch []string
		for i := from; i < min(count, from+timeline.CreationsMax); i++ {
			batch = append(batch, fmt.Sprintf("tenant-%06d/orders", i))
		}
		commands = append(commands, create(batch...))
	}
	return commands
}

// TestTable_AHundredThousandTimelines fit a snapshot of 8 MB.
func TestTable_AHundredThousandTimelines(t *testing.T) {
	table, _ := history(many(timeline.TimelinesMax)...)
	b := table.Append(nil)
	if len(b) > 8<<20 {
		t.Errorf("%d bytes", len(b))
	}
	again, err := timeline.Decode(b)
	if err != nil || again.Digest() != table.Digest() || again.Len() != timeline.TimelinesMax {
		t.Errorf("%v, %d timelines", err, again.Len())
	}
	page := table.Timelines("tenant-09", "tenant-099998/", 3)
	if want := []string{"tenant-099998/orders", "tenant-099999/orders"}; !slices.Equal(page, want) {
		t.Errorf("%q, want %q", page, want)
	}
}

func TestTable_AtTheEndOfAllTimesNothingIsIssued(t *testing.T) {
	table, _ := history(create("a"))
	table.Reserve(1<<64 - 1)
	if _, ceiling, ok := table.Bounds("a"); !ok || ceiling != timeline.CeilingMax {
		t.Errorf("%d, %v", ceiling, ok)
	}
	apply(&table, 2, grantOf(timeline.GroupOf("a"), 1, 0))
	if base, ceiling, ok := table.Bounds("a"); ok {
		t.Errorf("a tenure after that issues from %d to %d", base, ceiling)
	}
}

func TestName_TellsGoodOnesFromOthers(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "tenant-7/orders_2.x": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a b": false, "{a}": false, "ü": false, "a\n": false,
	} {
		if err := timeline.CheckName(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	// The sample of the specification of Redis Cluster: CRC16("123456789") = 31C3.
	if got := timeline.Slot("123456789"); got != 0x31C3%16384 {
		t.Errorf("slot %d", got)
	}
	if got := timeline.GroupOf("123456789"); got != "h199" {
		t.Errorf("group %s", got)
	}
}

func FuzzDecode(f *testing.F) {
	for seed := range uint64(8) {
		c := newCluster(f, seed)
		for range 300 {
			c.step()
		}
		f.Add(c.latest.Append(nil))
		for _, command := range c.log[:min(8, len(c.log))] {
			f.Add(command.Append(nil))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if table, err := timeline.Decode(b); err == nil && string(table.Append(nil)) != string(b) {
			t.Errorf("%x is decoded, and encoded as %x", b, table.Append(nil))
		}
		if c, err := timeline.DecodeCommand(b); err == nil && string(c.Append(nil)) != string(b) {
			t.Errorf("%x is decoded, and encoded as %x", b, c.Append(nil))
		}
	})
}
