package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/isotone/isotone/internal/inspect/survey"
)

// userReport is what users have used of all nodes together, since each of them started.
type userReport struct {
	// Users are in the order of their names.
	Users []survey.Use `json:"users"`
	// Untold says why the figures of some nodes are missing.
	Untold []string `json:"untold"`
}

// askUsers asks all nodes that have answered a survey.
func askUsers(ctx context.Context, asked *survey.Survey, report *survey.Report) *userReport {
	told, failed := make([]survey.Activity, len(report.Views)), make([]error, len(report.Views))
	var asking sync.WaitGroup
	for i, v := range report.Views {
		if v.State != nil {
			asking.Go(func() { failed[i] = asked.Get(ctx, v, "/admin/security", &told[i]) })
		}
	}
	asking.Wait()
	r, sums := &userReport{Users: []survey.Use{}, Untold: []string{}}, map[string]survey.Use{}
	for i, v := range report.Views {
		switch {
		case v.State == nil:
			r.Untold = append(r.Untold, fmt.Sprintf("the node at %s does not answer: what it has served is missing", v.Addr))
		case failed[i] != nil:
			r.Untold = append(r.Untold, fmt.Sprintf("node %d does not tell what users have used, which takes the role admin: %v", v.NodeID, failed[i]))
		}
		for _, u := range told[i].Uses {
			sum := sums[u.User]
			sums[u.User] = survey.Use{
				User: u.User, Requests: sum.Requests + u.Requests, Timestamps: sum.Timestamps + u.Timestamps,
				LackedRole: sum.LackedRole + u.LackedRole, OverQuota: sum.OverQuota + u.OverQuota,
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		r.Users = append(r.Users, sums[name])
	}
	return r
}

// write writes the users as a table.
func (r *userReport) write(w io.Writer) error {
	var out strings.Builder
	out.WriteByte('\n')
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "USER\tREQUESTS\tTIMESTAMPS\tNO ROLE\tOVER QUOTA")
	for _, u := range r.Users {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", u.User, u.Requests, u.Timestamps, u.LackedRole, u.OverQuota)
	}
	_ = t.Flush()
	out.WriteString("since each node started; TIMESTAMPS: and IDs; NO ROLE, OVER QUOTA: requests that were refused\n")
	for _, why := range r.Untold {
		fmt.Fprintf(&out, "! %s\n", why)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
