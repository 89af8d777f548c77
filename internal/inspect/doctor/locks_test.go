package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

func TestJudge_Locks(t *testing.T) {
	for found, l := range map[string]survey.Locks{
		"9000 of 10000 locks are held": {Held: 9000, Sessions: 5},
		"90000 of 100000 sessions":     {Sessions: 90_000},
		"a frontier is 12 s behind":    {Groups: 2, LagSeconds: 12},
	} {
		c := cluster()
		state(c, 1).Locks = &l
		list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
		if len(list) != 1 || list[0].Check != "locks" || list[0].Status != doctor.Warning || !strings.Contains(list[0].Found, found) || list[0].Do == "" {
			t.Errorf("%s: %+v", found, list)
		}
	}
	c := cluster()
	state(c, 1).Locks = &survey.Locks{Held: 1, Sessions: 2, Groups: 1, LagSeconds: 0.1}
	list := doctor.Judge(&doctor.Measurements{At: now, Cluster: c})
	if !slices.ContainsFunc(list.Findings, func(f doctor.Finding) bool {
		return f.Check == "locks" && f.Found == "1 lock held in 2 sessions, 1 group of writers"
	}) || len(notOK(list)) > 0 {
		t.Errorf("%+v", list)
	}
}
