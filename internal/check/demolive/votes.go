package demolive

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// Votes is the document: what has been counted so far in a made-up election.
type Votes struct {
	Version   int        `json:"version"` // first: tally looks for it there
	Written   time.Time  `json:"written"`
	Counted   int        `json:"counted"` // percent
	Parties   []Party    `json:"parties"`
	Districts []District `json:"districts"`
}

// Party is the votes of a party in all districts.
type Party struct {
	Name  string `json:"name"`
	Votes int    `json:"votes"`
}

// District is the votes in one district, in the order of the parties.
type District struct {
	Name    string `json:"name"`
	Counted int    `json:"counted"` // percent
	Votes   []int  `json:"votes"`
}

// The size of the election, which makes a document of about 4 KiB. documentMax bounds one in bytes.
const (
	districts   = 65
	documentMax = 7 << 10
)

var (
	parties = []string{"Amber", "Birch", "Cedar", "Dune", "Elm"}
	// popular is how many percent of the voters each party has on average.
	popular = []int{27, 25, 21, 16, 11}
)

// count counts the votes, in as many steps as there are documents.
type count struct {
	votes  Votes
	steps  int
	random *rand.Rand
	final  [][]int // by district and party
}

// newCount returns an election of which nothing is counted.
func newCount(steps int, seed uint64) *count {
	c := &count{steps: max(1, steps), random: rand.New(rand.NewPCG(seed, 1))}
	for _, name := range parties {
		c.votes.Parties = append(c.votes.Parties, Party{Name: name})
	}
	for d := range districts {
		c.votes.Districts = append(c.votes.Districts, District{Name: fmt.Sprintf("D%d", d+1), Votes: make([]int, len(parties))})
		var final []int
		voters := 30_000 + c.random.IntN(60_000)
		for _, percent := range popular {
			final = append(final, voters/100*percent*(50+c.random.IntN(100))/100)
		}
		c.final = append(c.final, final)
	}
	return c
}

// next counts on and returns the next document, which has one line and differs from all others.
func (c *count) next(now time.Time) ([]byte, error) {
	v := &c.votes
	v.Version++
	v.Written, v.Counted = now.UTC().Truncate(time.Millisecond), min(100, 100*v.Version/c.steps)
	for p := range v.Parties {
		v.Parties[p].Votes = 0
	}
	for d := range v.Districts {
		one := &v.Districts[d]
		if v.Counted == 100 {
			one.Counted = 100
		}
		one.Counted = min(100, max(one.Counted, v.Counted-15+c.random.IntN(30)))
		for p, final := range c.final[d] {
			one.Votes[p] = final * one.Counted / 100
			v.Parties[p].Votes += one.Votes[p]
		}
	}
	return json.Marshal(v)
}
