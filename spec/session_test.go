package spec_test

import (
	"math"
	"slices"
	"testing"

	"github.com/isotone/isotone/spec"
)

// The sessions of these tests have a TTL of 9,000 ns and a LINGER of 900, ticks take 1,000 ns, and the term begins at time 100.
const ttl, linger = 9000, 900

// opened begins a leader that knows holds of earlier terms.
func opened(holds ...spec.Hold) []spec.Event {
	list := elected(1, 7, 2, 1000)
	list[0].Tick, list[1].Ceiling, list[1].Holds = 1000, 100, holds
	return append(list, on(1, spec.Event{Kind: spec.State, Ceiling: 1000, Serves: true})...)
}

// instant begins a step with events.
func instant(time int64, list ...spec.Event) []spec.Event {
	return on(1, append([]spec.Event{{Kind: spec.BeginStep, At: time}}, list...)...)
}

// ran has the leader run for 12,500 ns from a time on.
func ran(from int64) (list []spec.Event) {
	for i := range int64(5) {
		list = append(list, instant(from+2500*(i+1), spec.Event{Kind: spec.Tick, Count: 1})...)
	}
	return list
}

// asks is a request that arrives, and takes effect.
func asks(token uint64, r spec.SessionRequest) []spec.Event {
	return on(1, spec.Event{Kind: spec.Request, Token: token}, spec.Event{Kind: spec.Session, Token: token, Session: &r})
}

// alive answers a request of session 5.
func alive(token uint64, holds ...spec.Hold) []spec.Event {
	return on(1, spec.Event{Kind: spec.Answer, Token: token, Reply: &spec.Reply{Alive: true, Session: 5, Holds: holds}})
}

// binds is the request of session 5 to be bound, which writes in the group "g".
func binds(token, conn, epoch uint64) []spec.Event {
	return asks(token, spec.SessionRequest{Conn: conn, Bind: &spec.Bind{Session: 5, Epoch: epoch, TTL: ttl, Linger: linger, Reports: []spec.Stamps{{Group: "g", Low: spec.Timestamp{Time: 1}}}}})
}

// bound has session 5 bound over the connection 1 at time 10.
func bound(holds ...spec.Hold) []spec.Event {
	return slices.Concat(opened(holds...), instant(10), binds(1, 1, 3), alive(1))
}

func stamp(time uint64) spec.Timestamp { return spec.Timestamp{Time: time} }

// wants has session 5 ask for the lock "x" with the ticket 110.
func wants(token uint64) []spec.Event {
	return asks(token, spec.SessionRequest{Conn: 1, Lock: &spec.Lock{Op: spec.LockAcquire, Name: "x", Ticket: stamp(110), Fresh: true}})
}

// held is the hold of "x" by session 5.
func held(token uint64) spec.Hold {
	return spec.Hold{Name: "x", Session: 5, Token: stamp(token), TTL: ttl}
}

// changes applies changes of locks.
func changes(index uint64, list ...spec.LockChange) []spec.Event {
	return on(1, spec.Event{Kind: spec.Entry, Index: index, Term: 2, Command: &spec.Command{Digest: index, Locks: list}})
}

func claims(h spec.Hold) spec.LockChange { return spec.LockChange{Claim: true, Hold: h} }

func frees(token uint64) spec.LockChange {
	return spec.LockChange{Hold: spec.Hold{Name: "x", Token: stamp(token)}}
}

// claimed has session 5 hold "x" with the token 120.
func claimed() []spec.Event {
	return slices.Concat(bound(), instant(20), wants(2), instant(30), changes(2, claims(held(120))))
}

// releases has session 5 ask for the release of "x".
func releases(token, of uint64) []spec.Event {
	return asks(token, spec.SessionRequest{Conn: 1, Lock: &spec.Lock{Op: spec.LockRelease, Name: "x", Token: stamp(of)}})
}

// expires tells a connection that its session has ended.
func expires(conn uint64) []spec.Event {
	return on(1, spec.Event{Kind: spec.TellExpired, Conn: conn})
}

func tellsHold(kind spec.Kind, token uint64) []spec.Event {
	return on(1, spec.Event{Kind: kind, Conn: 1, Hold: &spec.Hold{Name: "x", Token: stamp(token)}})
}

// sealed has session 5 tell that the stores refuse all of earlier terms, or more.
func sealed(token, through uint64) []spec.Event {
	return asks(token, spec.SessionRequest{Conn: 1, Sealed: []spec.Stamps{{Group: "g", High: spec.Timestamp{Time: through, Index: math.MaxUint64}}}})
}

// takes issues the stamps 110 to 112 to session 5, at time 30. What came before is sealed.
func takes(bound uint64) []spec.Event {
	return slices.Concat(instant(20), sealed(2, 99), instant(30), asks(3, spec.SessionRequest{Conn: 1, Group: "g"}), on(1, spec.Event{
		Kind: spec.Answer, Token: 3, Reply: &spec.Reply{Alive: true, Session: 5, Bound: stamp(bound)}, Ranges: []spec.Range{{First: stamp(110), Last: stamp(112)}},
	}))
}

// says is what session 5 says of a stamp that it may write, and its answer.
func says(token uint64, lows, doubts []spec.Stamps) []spec.Event {
	return slices.Concat(asks(token, spec.SessionRequest{Conn: 1, Lows: lows, Doubts: doubts}), alive(token))
}

func low(time uint64) []spec.Stamps { return []spec.Stamps{{Group: "g", Low: stamp(time)}} }

func frontier(time uint64) []spec.Event {
	return on(1, spec.Event{Kind: spec.Frontier, Stamps: &spec.Stamps{Group: "g", High: stamp(time)}})
}

func seals(through uint64) []spec.Event {
	return on(1, spec.Event{Kind: spec.AskSeal, Conn: 1, Stamps: &spec.Stamps{Group: "g", High: stamp(through)}})
}

// TestSpec_RulesOfSessions: the last event of each history is refused by a rule, "" if it is permitted. All others are permitted.
func TestSpec_RulesOfSessions(t *testing.T) {
	const grace = 60_000_000
	other := func(token, conn, session, ticket uint64) []spec.Event {
		return slices.Concat(asks(token, spec.SessionRequest{Conn: conn, Bind: &spec.Bind{Session: session, Epoch: 1, TTL: ttl}}),
			asks(token+1, spec.SessionRequest{Conn: conn, Lock: &spec.Lock{Op: spec.LockAcquire, Name: "x", Ticket: stamp(ticket), Fresh: true}}))
	}
	unconfirmed := opened()
	unconfirmed[1].Config = &spec.Config{Voters: []uint64{1, 2, 3}}
	unconfirmed = slices.Insert(unconfirmed, 3, on(1, spec.Event{Kind: spec.Tick, Count: 10})...)
	restored := bound()
	restored[1].Restored = 50
	ended := slices.Concat(bound(), takes(0), ran(30), expires(1))
	for name, test := range map[string]struct {
		rule    string
		history []spec.Event
	}{
		"a session":                                   {"", bound()},
		"a session of nobody who issues":              {"opening", slices.Concat(elected(1, 7, 2, 1000), instant(10), binds(1, 1, 3))},
		"alive without a round":                       {"round", slices.Concat(unconfirmed, instant(10), binds(1, 1, 3), alive(1))},
		"alive over a strange connection":             {"connection", slices.Concat(bound(), asks(2, spec.SessionRequest{Conn: 2}), alive(2))},
		"a later epoch":                               {"", slices.Concat(bound(), instant(20), binds(2, 2, 4), alive(2))},
		"an earlier epoch":                            {"connection", slices.Concat(bound(), instant(20), binds(2, 2, 3), alive(2))},
		"a former connection":                         {"connection", slices.Concat(bound(), instant(20), binds(2, 2, 4), alive(2), instant(30), asks(3, spec.SessionRequest{Conn: 1}), alive(3))},
		"another TTL than that of the hold":           {"ttl", bound(spec.Hold{Name: "x", Session: 5, Token: stamp(50), TTL: ttl - 1})},
		"the end of a silent session":                 {"", slices.Concat(bound(), ran(10), expires(1))},
		"the end of one that was heard":               {"end", slices.Concat(bound(), ran(10)[:8], expires(1))},
		"the end of one while the leader did not run": {"end", slices.Concat(bound(), instant(50_000, spec.Event{Kind: spec.Tick, Count: 1}), expires(1))},
		"the end of one that was asked for":           {"", slices.Concat(bound(), asks(2, spec.SessionRequest{Conn: 1, Close: true}), expires(1))},
		"the end of one that an operator has broken":  {"", slices.Concat(claimed(), asks(3, spec.SessionRequest{Lock: &spec.Lock{Op: spec.LockBreak, Name: "x", Token: stamp(120)}}), expires(1))},
		"alive after the end":                         {"connection", slices.Concat(bound(), ran(10), expires(1), instant(20_000), asks(2, spec.SessionRequest{Conn: 1}), alive(2))},
		"bound while it is being ended":               {"end", slices.Concat(claimed(), ran(30), expires(1), instant(20_000), binds(4, 2, 4), alive(4))},

		"a claim":                                {"", claimed()},
		"a claim of what is held":                {"claim", slices.Concat(claimed(), instant(40), other(3, 2, 6, 130), changes(3, claims(spec.Hold{Name: "x", Session: 6, Token: stamp(140), TTL: ttl})))},
		"a claim of nobody who asked":            {"claim", slices.Concat(bound(), instant(30), changes(2, claims(held(120))))},
		"a claim for a session that has ended":   {"claim", slices.Concat(bound(), wants(2), ran(10), expires(1), instant(20_000), wants(3), answered(1, 4, 150, 150), changes(2, claims(held(160))))},
		"a claim in the first minute":            {"claim", slices.Concat(restored, instant(20), wants(2), instant(30), changes(2, claims(held(120))))},
		"a claim that does not keep the order":   {"queue", slices.Concat(bound(), instant(20), wants(2), other(3, 2, 6, 111), changes(2, claims(spec.Hold{Name: "x", Session: 6, Token: stamp(120), TTL: ttl})))},
		"a claim with another TTL":               {"ttl", slices.Concat(bound(), instant(20), wants(2), instant(30), changes(2, claims(spec.Hold{Name: "x", Session: 5, Token: stamp(120), TTL: 1})))},
		"a token below an earlier one":           {"token", slices.Concat(bound(spec.Hold{Name: "y", Session: 6, Token: stamp(130), TTL: ttl}), instant(20), wants(2), changes(2, claims(held(120))))},
		"a token of the term before":             {"opening", slices.Concat(bound(), instant(20), wants(2), changes(2, claims(held(90))))},
		"a token at the ceiling":                 {"ceiling", slices.Concat(bound(), instant(20), wants(2), changes(2, claims(held(1000))))},
		"a token that was issued":                {"once", slices.Concat(bound(), instant(20), wants(2), answered(1, 3, 120, 120), changes(2, claims(held(120))))},
		"a token below an answer before":         {"arrival", slices.Concat(bound(), answered(1, 3, 130, 130), instant(20), wants(4), changes(2, claims(held(120))))},
		"a hold that is not applied":             {"log", slices.Concat(claimed(), on(1, spec.Event{Kind: spec.Held, Holds: []spec.Hold{{Name: "x"}}}))},
		"a grant that is told":                   {"", slices.Concat(claimed(), tellsHold(spec.TellHeld, 120))},
		"a grant that is told too early":         {"told", slices.Concat(bound(), instant(20), wants(2), tellsHold(spec.TellHeld, 120))},
		"a hold that is shown":                   {"", slices.Concat(claimed(), instant(40), releases(3, 120), alive(2, held(120)))},
		"a hold that is shown and is none":       {"told", slices.Concat(bound(), instant(20), wants(2), alive(2, held(120)))},
		"a hold that is shown while it is freed": {"release", slices.Concat(claimed(), instant(40), releases(3, 120), instant(50), alive(3, held(120)))},
		"a release":                              {"", slices.Concat(claimed(), instant(40), releases(3, 120), instant(50), changes(3, frees(120)), tellsHold(spec.TellFree, 120))},
		"a release that was not asked for":       {"release", slices.Concat(claimed(), instant(40), changes(3, frees(120)))},
		"a release with another token":           {"release", slices.Concat(claimed(), instant(40), releases(3, 119), instant(50), changes(3, frees(120)))},
		"a release after the end":                {"", slices.Concat(claimed(), ran(30), changes(3, frees(120)))},
		"a release without a connection":         {"", slices.Concat(claimed(), on(1, spec.Event{Kind: spec.Gone, Conn: 1}), instant(1130), changes(3, frees(120)))},
		"a release of one that binds too late":   {"", slices.Concat(claimed(), on(1, spec.Event{Kind: spec.Gone, Conn: 1}), instant(1200), binds(4, 2, 4), instant(1210), changes(3, frees(120)))},
		"a release soon after the connection":    {"release", slices.Concat(claimed(), on(1, spec.Event{Kind: spec.Gone, Conn: 1}), instant(1129), changes(3, frees(120)))},
		"a release that is told too early":       {"release", slices.Concat(claimed(), instant(40), releases(3, 120), tellsHold(spec.TellFree, 120))},
		"a release after a change of leaders":    {"", slices.Concat(opened(held(50)), ran(2), changes(2, frees(50)))},
		"a release once its LINGER is known":     {"", slices.Concat(opened(held(50)), instant(10), binds(1, 1, 3), on(1, spec.Event{Kind: spec.Gone, Conn: 1}), instant(1200), changes(2, frees(50)))},
		"a release right after it":               {"release", slices.Concat(opened(held(50)), ran(2)[:8], changes(2, frees(50)))},
		"a release of one who was heard then":    {"release", slices.Concat(bound(held(50)), instant(40), changes(2, frees(50)))},

		"the frontier of earlier terms":          {"frontier", slices.Concat(bound(), frontier(50))},
		"the frontier once those are sealed":     {"", slices.Concat(bound(), sealed(2, 99), frontier(99))},
		"the frontier below a stamp":             {"", slices.Concat(bound(), takes(0), frontier(109))},
		"the frontier at a stamp":                {"frontier", slices.Concat(bound(), takes(0), frontier(110))},
		"the frontier at a stamp that is done":   {"", slices.Concat(bound(), takes(0), instant(40), says(4, low(111), nil), frontier(110))},
		"the frontier at one in doubt":           {"frontier", slices.Concat(bound(), takes(0), instant(40), says(4, low(113), low(110)), frontier(110))},
		"the frontier up to a bound":             {"frontier", slices.Concat(bound(), takes(200), instant(40), says(4, low(120), nil), frontier(120))},
		"the frontier at one of a dead session":  {"frontier", slices.Concat(ended, frontier(110))},
		"the frontier at one that is sealed":     {"", slices.Concat(bound(), takes(0), instant(40), says(4, low(113), low(110)), sealed(5, 110), frontier(110))},
		"the frontier at one that is given up":   {"", slices.Concat(bound(), takes(0), instant(40), binds(4, 2, 4), alive(4), frontier(112))},
		"a frontier that sinks":                  {"frontier", slices.Concat(bound(), sealed(2, 99), frontier(99), frontier(98))},
		"a stamp below the frontier":             {"take", slices.Concat(bound(), sealed(2, 99), frontier(110), takes(0))},
		"a bound at the ceiling":                 {"ceiling", slices.Concat(bound(), takes(1000))},
		"a seal of earlier terms":                {"", slices.Concat(bound(), takes(0), instant(grace+2), seals(99))},
		"a seal in the first 60 ms":              {"seal", slices.Concat(bound(), takes(0), instant(grace+1), seals(99))},
		"a seal of what may be written":          {"seal", slices.Concat(bound(), takes(0), instant(grace+2), seals(110))},
		"a seal of what a dead session may have": {"", slices.Concat(bound(), other(7, 2, 6, 105), takes(0), ran(30), expires(1), instant(grace+2), on(1, spec.Event{Kind: spec.AskSeal, Conn: 2, Stamps: &spec.Stamps{Group: "g", High: stamp(112)}}))},
		"fenced too early":                       {"undecided", slices.Concat(bound(), takes(0), instant(40), on(1, spec.Event{Kind: spec.TellFenced, Conn: 1, Stamps: &spec.Stamps{Group: "g"}}))},
	} {
		t.Run(name, func(t *testing.T) { refuses(t, test.rule, test.history) })
	}
}
